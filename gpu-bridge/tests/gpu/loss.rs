//! A driver may lose its device. Those who used it are told; those who come later get a new one.

use weft_gpu::Error;

use crate::{context, gpu};

#[test]
fn a_hundred_losses() {
    let gpu = gpu();
    for loss in 0..100 {
        let before = context(&gpu);
        let x = before.tensor(&[4], &[1.0_f32; 4]).unwrap();
        // Lost with work on its way, and with none.
        let mut y = x.add(&x).unwrap();
        if loss % 2 == 0 {
            y.to_vec::<f32>().unwrap();
        }
        gpu.lose();
        for _ in 0..2 {
            let error = (0..3).try_for_each(|_| {
                y = y.add(&x)?;
                y.to_vec::<f32>().map(drop)
            });
            assert!(matches!(error, Err(Error::DeviceLost { .. })), "loss {loss}: {error:?}");
        }
        assert!(matches!(before.zeros(&[9]).and_then(|zeros| zeros.item()), Err(Error::DeviceLost { .. })));
        let after = context(&gpu);
        let x = after.tensor(&[4], &[1.0_f32; 4]).unwrap();
        assert_eq!(x.add(&x).unwrap().to_vec::<f32>().unwrap(), [2.0; 4], "loss {loss}");
        drop((before, y));
        assert_eq!(gpu.stats().uncaptured_errors, 0);
    }
}

#[test]
fn a_loss_wakes_those_who_wait() {
    let gpu = gpu();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let context = context(&gpu);
            std::thread::spawn(move || {
                let x = context.zeros(&[1 << 18])?;
                loop {
                    x.add(&x)?.to_vec::<f32>()?;
                }
            })
        })
        .collect::<Vec<std::thread::JoinHandle<Result<(), Error>>>>();
    std::thread::sleep(std::time::Duration::from_millis(100));
    gpu.lose();
    for thread in waiting {
        assert!(matches!(thread.join().unwrap(), Err(Error::DeviceLost { .. })));
    }
}

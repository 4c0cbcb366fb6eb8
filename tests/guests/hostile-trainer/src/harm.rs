//! Harm that any call can do.
//!
//! | `harm`       | what it does                                                             |
//! |--------------|--------------------------------------------------------------------------|
//! | `loop`       | never returns and calls nothing                                          |
//! | `sleep`      | waits in WASI for as long as it can be asked to                          |
//! | `matmuls`    | multiplies matrices for ever                                             |
//! | `stubborn`   | the same, and does not care whether they can be multiplied               |
//! | `one-matmul` | multiplies two matrices that take hours                                  |
//! | `trap`       | executes `unreachable`                                                   |
//! | `panic`      | panics with a message                                                    |
//! | `memory`     | takes linear memory until it is refused                                  |
//! | `leak`       | makes tensors and drops none                                             |
//! | `allocate`   | takes device memory until it is refused                                  |
//! | `allocate-at-once` | takes four gigabytes of it                                         |
//! | `allocate-beyond` | takes more of it than an address can reach                         |
//! | `read`       | reads a tensor of a gigabyte at once                                     |
//! | `write`      | writes behind the end of a tensor                                        |
//! | `draws`      | draws random tensors for ever                                            |
//! | `device-lost` | says that its device was lost, which was not                            |
//! | `shapes`     | multiplies matrices that do not fit                                      |
//! | `broadcast`  | adds tensors that do not fit                                             |
//! | `axes`       | gives a tensor a million axes                                            |
//! | `index`      | takes a row that there is not                                            |
//! | `declare`    | declares a tensor, which only `init` does                                |
//! | `optimize`   | declares an optimizer, which only `init` does                            |

use std::hint::black_box;

use weft_sdk::model::Initial;
use weft_sdk::optim::Sgd;
use weft_sdk::{Path, Result, Tensor};

#[path = "../../sleep.rs"]
mod sleep;

/// Does the harm, if it is one of these.
pub fn does(harm: &str) -> Result<()> {
    match harm {
        "loop" => loop {
            black_box(());
        },
        "sleep" => {
            sleep::for_ever();
            Ok(())
        }
        "matmuls" => {
            let x = Tensor::zeros(&[256, 256])?;
            loop {
                x.matmul(&x)?;
            }
        }
        "stubborn" => {
            let x = Tensor::zeros(&[256, 256])?;
            loop {
                let _ = x.matmul(&x);
            }
        }
        "one-matmul" => {
            // Views of one number each: what they multiply to is small, but long in the making.
            let x = Tensor::scalar(1.0)?;
            let (a, b) = (x.expand(&[512, 1 << 30])?, x.expand(&[1 << 30, 512])?);
            a.matmul(&b).map(drop)
        }
        "trap" => trap(),
        "panic" => panic!("told to panic"),
        "memory" => hoard(),
        "leak" => loop {
            std::mem::forget(Tensor::scalar(1.0)?);
        },
        "allocate" => loop {
            std::mem::forget(Tensor::zeros(&[1 << 20])?);
        },
        "allocate-at-once" => Tensor::zeros(&[1 << 30]).map(drop),
        "allocate-beyond" => Tensor::zeros(&[u32::MAX; 4]).map(drop),
        "read" => Tensor::scalar(1.0)?.expand(&[1 << 28])?.to_vec::<f32>().map(drop),
        "write" => Tensor::zeros(&[4])?.write(u64::MAX, &[1.0_f32]),
        "draws" => loop {
            Tensor::uniform(&[1], 0.0, 1.0)?;
        },
        "device-lost" => Err(weft_sdk::Error::DeviceLost("so it says".to_owned())),
        "shapes" => Tensor::zeros(&[2, 3])?.matmul(&Tensor::zeros(&[2, 3])?).map(drop),
        "broadcast" => Tensor::zeros(&[2])?.add(&Tensor::zeros(&[3])?).map(drop),
        "axes" => Tensor::zeros(&[1])?.reshape(&vec![1; 1_000_000]).map(drop),
        "index" => Tensor::zeros(&[2, 3])?.gather_rows(&Tensor::new(&[7_u32], &[1])?).map(drop),
        "declare" => Path::root().weight("late", &[1], Initial::Constant(0.0)).map(drop),
        "optimize" => Sgd::default().declare(),
        _ => Ok(()),
    }
}

fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}

fn hoard() -> ! {
    loop {
        let mut memory = Vec::<u8>::new();
        if memory.try_reserve_exact(1 << 20).is_err() {
            std::process::abort();
        }
        memory.resize(1 << 20, 1);
        black_box(&memory);
        std::mem::forget(memory);
    }
}

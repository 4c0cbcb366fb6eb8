//! A device is lost: its leases say so, and new ones go to the rebuilt device.

use weft_gpu::Error;
use weft_gpu::device::Kind;

use crate::support::{MEBIBYTE, Pretended, context, lease, pool};

#[test]
fn a_lease_of_a_lost_device_fails_for_good_and_a_new_one_works() {
    let device = Pretended::new(Kind::Discrete, 256 * MEBIBYTE);
    let pool = pool([device.clone() as _]);
    let old = lease(&pool, "ada", 1);
    let context_of_old = context(&old, 1);
    let tensor = context_of_old.zeros(&[16]).unwrap();
    pool.reset(old.device()).unwrap();
    for _ in 0..3 {
        assert!(matches!(tensor.add(&tensor), Err(Error::DeviceLost { .. })));
        assert!(matches!(tensor.to_vec::<f32>(), Err(Error::DeviceLost { .. })));
    }
    let new = lease(&pool, "ada", 1);
    assert_eq!(context(&new, 1).zeros(&[16]).unwrap().to_vec::<f32>().unwrap(), [0.0; 16]);
    assert!(matches!(tensor.add(&tensor), Err(Error::DeviceLost { .. })));
}

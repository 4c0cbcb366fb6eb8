//! Two tenants' data.

use std::sync::Arc;

use weft_gpu::device::Shared;

use crate::support::{context, lease, pool};

const SIZES: [usize; 5] = [64, 4096, 70_000, 1 << 20, 9 << 20];

pub fn a_new_tenant_never_sees_old_bytes(device: Arc<dyn Shared>) {
    let pool = pool([device]);
    for round in 0..10 {
        let old = lease(&pool, "old", 1);
        let secrets = context(&old, 1);
        let written: Vec<_> =
            SIZES.iter().map(|&size| secrets.tensor(&[size], &vec![0xA5_u8; size]).unwrap()).collect();
        // Results of operations and what is kept for the next step as well.
        let doubled = secrets.full(&[100_000], weft_gpu::DType::F32, 0.75).unwrap();
        assert_eq!(doubled.to_vec::<f32>().unwrap()[99_999], 0.75);
        drop((old, secrets, written, doubled));

        let new = lease(&pool, "new", 1);
        let fresh = context(&new, 1);
        for size in SIZES {
            let block = fresh.heap().take(size).unwrap();
            let mut bytes = vec![0xFF; block.bytes()];
            fresh.device().read(block.memory(), 0, &mut bytes).unwrap();
            assert!(bytes.iter().all(|&byte| byte == 0), "round {round}: old bytes in {size}");
        }
    }
}

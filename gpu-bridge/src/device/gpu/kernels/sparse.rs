//! Sparse rows, and k-means.

use super::Call;
use crate::error::Result;
use crate::op::Op;

pub(super) fn run(call: Call<'_>, op: &Op) -> Result<()> {
    let _ = call;
    match op {
        _ => super::misplaced(op),
    }
}

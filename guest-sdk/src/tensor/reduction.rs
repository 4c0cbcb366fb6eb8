//! Many elements to one.

use super::{Reducer, Tensor};
use crate::host::kernels;
use crate::{Error, Result};

impl Tensor {
    /// Over some axes, which stay with size 1 if `keep`.
    pub fn reduce(&self, op: Reducer, axes: &[u32], keep: bool) -> Result<Self> {
        kernels::reduce(op, self.raw(), bits(axes)?, keep).map(Self::from)
    }

    /// Over all axes, to a scalar.
    pub fn reduce_all(&self, op: Reducer) -> Result<Self> {
        kernels::reduce(op, self.raw(), all(self.rank()), false).map(Self::from)
    }

    /// The sum of all elements, a scalar.
    pub fn sum(&self) -> Result<Self> {
        self.reduce_all(Reducer::Sum)
    }

    /// The mean of all elements, a scalar.
    pub fn mean(&self) -> Result<Self> {
        self.reduce_all(Reducer::Mean)
    }

    /// The largest of all elements, a scalar.
    pub fn max(&self) -> Result<Self> {
        self.reduce_all(Reducer::Max)
    }

    /// The smallest of all elements, a scalar.
    pub fn min(&self) -> Result<Self> {
        self.reduce_all(Reducer::Min)
    }

    /// The sum along one axis, which goes.
    pub fn sum_axis(&self, axis: u32) -> Result<Self> {
        self.reduce(Reducer::Sum, &[axis], false)
    }

    /// The mean along one axis, which goes.
    pub fn mean_axis(&self, axis: u32) -> Result<Self> {
        self.reduce(Reducer::Mean, &[axis], false)
    }

    /// The mean square distance from the mean, the count lowered by `correction`.
    pub fn variance(&self, axes: &[u32], correction: u32, keep: bool) -> Result<Self> {
        kernels::variance(self.raw(), bits(axes)?, correction, keep).map(Self::from)
    }

    /// The index (u32) of the first largest along an axis, which goes.
    pub fn arg_max(&self, axis: u32) -> Result<Self> {
        kernels::arg_max(self.raw(), axis, false).map(Self::from)
    }

    /// The index (u32) of the first smallest along an axis, which goes.
    pub fn arg_min(&self, axis: u32) -> Result<Self> {
        kernels::arg_min(self.raw(), axis, false).map(Self::from)
    }

    /// The `count` largest of the last axis, largest first, and their indices (u32).
    pub fn top_k(&self, count: u32) -> Result<(Self, Self)> {
        kernels::top_k(self.raw(), count).map(|(values, indices)| (values.into(), indices.into()))
    }
}

/// One bit for each axis.
fn bits(axes: &[u32]) -> Result<u32> {
    axes.iter().try_fold(0, |bits, &axis| match 1_u32.checked_shl(axis) {
        Some(bit) => Ok(bits | bit),
        None => Err(Error::BadShape(format!("there is no axis {axis}"))),
    })
}

fn all(rank: u32) -> u32 {
    1_u32.checked_shl(rank).map_or(u32::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_are_one_bit_each() {
        assert_eq!(bits(&[]), Ok(0));
        assert_eq!(bits(&[0, 2]), Ok(0b101));
        assert!(bits(&[32]).is_err());
        assert_eq!((all(0), all(3)), (0, 0b111));
    }
}

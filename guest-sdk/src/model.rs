//! What a trainer declares: tensors by path name, each with a role.
//!
//! A [`Path`] is a place in the model, handed from the model to its layers: `path.at("layer1").at(0)` is where a layer
//! declares `layer1.0.weight`. Names and their order are what a saved model has, so a model that is to load weights from
//! elsewhere uses the names from there.
//!
//! A declared tensor stays with the host and has no value before `init` has returned; only `init` declares.
//!
//! ```
//! use weft_sdk::model::{Initial, Path};
//!
//! # fn main() -> weft_sdk::Result<()> {
//! let path = Path::root().at("head");
//! let scale = path.weight("scale", &[3], Initial::Constant(2.0))?;
//! assert_eq!(path.name("scale"), "head.scale");
//! assert_eq!(scale.to_vec::<f32>()?, [2.0; 3]);
//! # Ok(())
//! # }
//! ```

use std::fmt::Display;

use crate::host::model as host;
use crate::{Context, Result, Tensor};

pub use crate::bindings::weft::train::model::{Initial, Role};

/// A place in the model, as in `layers.0`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    /// The model itself.
    pub fn root() -> Self {
        Self::default()
    }

    /// A part of what is here: a name, or a number in a sequence.
    pub fn at(&self, part: impl Display) -> Self {
        Self(self.name(part))
    }

    /// The full name of something here.
    pub fn name(&self, part: impl Display) -> String {
        if self.0.is_empty() { part.to_string() } else { format!("{}.{part}", self.0) }
    }

    /// A tensor that is trained.
    pub fn weight(&self, name: &str, dimensions: &[u32], initial: Initial) -> Result<Tensor> {
        self.declare(name, Role::Weight, dimensions, initial)
    }

    /// A tensor that follows along, as running statistics do: no gradient; averaged over the workers.
    pub fn buffer(&self, name: &str, dimensions: &[u32], initial: Initial) -> Result<Tensor> {
        self.declare(name, Role::Buffer, dimensions, initial)
    }

    /// A tensor that `step` counts up from zero, that is summed over the workers, and that `update` makes use of.
    pub fn statistic(&self, name: &str, dimensions: &[u32]) -> Result<Tensor> {
        self.declare(name, Role::Statistic, dimensions, Initial::Constant(0.0))
    }

    /// A tensor that stays with its worker.
    pub fn local(&self, name: &str, dimensions: &[u32], initial: Initial) -> Result<Tensor> {
        self.declare(name, Role::Local, dimensions, initial)
    }

    pub fn declare(&self, name: &str, role: Role, dimensions: &[u32], initial: Initial) -> Result<Tensor> {
        let name = self.name(name);
        host::declare(&name, role, dimensions, initial).map(Tensor::from).with_context(|| format!("declaring `{name}`"))
    }
}

impl Initial {
    /// Uniform, as far from zero on both sides.
    pub fn within(bound: f32) -> Self {
        Self::Uniform((-bound, bound))
    }

    /// Normal, around zero.
    pub fn deviating(deviation: f32) -> Self {
        Self::Normal((0.0, deviation))
    }

    /// What linear layers and convolutions start with in PyTorch: within `1 / sqrt(fan_in)`.
    pub fn of_fan_in(fan_in: u32) -> Self {
        Self::within(1.0 / (fan_in.max(1) as f32).sqrt())
    }

    /// He's normal distribution for rectifiers: keeps the variance going forward if `fan` is how many inputs an output
    /// has, and going backward if it is how many outputs an input has.
    pub fn he_normal(fan: u32) -> Self {
        Self::deviating((2.0 / fan.max(1) as f32).sqrt())
    }

    /// He's uniform distribution for rectifiers.
    pub fn he_uniform(fan: u32) -> Self {
        Self::within((6.0 / fan.max(1) as f32).sqrt())
    }

    /// Glorot's uniform distribution.
    pub fn glorot_uniform(fan_in: u32, fan_out: u32) -> Self {
        Self::within((6.0 / (fan_in + fan_out).max(1) as f32).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_joined_by_dots_and_the_root_has_none() {
        let root = Path::root();
        assert_eq!(root.name("weight"), "weight");
        assert_eq!(root.at("body").at("layers").at(3).name("bias"), "body.layers.3.bias");
    }

    #[test]
    fn initial_distributions_are_those_of_pytorch() {
        assert_eq!(Initial::of_fan_in(25), Initial::Uniform((-0.2, 0.2)));
        assert_eq!(Initial::he_normal(8), Initial::Normal((0.0, 0.5)));
        assert_eq!(Initial::glorot_uniform(2, 4), Initial::Uniform((-1.0, 1.0)));
    }
}

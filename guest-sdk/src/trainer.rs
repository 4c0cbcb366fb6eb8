//! A function that trains a model.
//!
//! A trainer declares its model in [`Trainer::init`] and says in [`Trainer::forward`] what it makes of samples. Loss,
//! step, evaluation and inference follow from that for a classifier or a regression; each can be said otherwise. It only
//! computes: no peer, shard, checkpoint or schedule is seen here. Nor does it keep state of its own: the host may replace
//! the instance between any two calls, so whatever is to last is a declared tensor.
//!
//! ```
//! use weft_sdk::nn::{Linear, Mode};
//! use weft_sdk::optim::Sgd;
//! use weft_sdk::{HyperParameters, Path, Result, Tensor, Trainer};
//!
//! #[derive(HyperParameters)]
//! struct Parameters {
//!     /// How many numbers a sample has.
//!     #[hyper(default = 4, low = 1)]
//!     features: u32,
//! }
//!
//! struct Classifier(Linear);
//!
//! /// Tells three classes apart by a linear layer.
//! #[weft_sdk::trainer(convex)]
//! impl Trainer for Classifier {
//!     type Parameters = Parameters;
//!
//!     fn init(parameters: Parameters, path: &Path) -> Result<Self> {
//!         Sgd::default().declare()?;
//!         Ok(Self(Linear::new(path, parameters.features, 3)?))
//!     }
//!
//!     fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
//!         self.0.forward(x)
//!     }
//! }
//!
//! assert_eq!(Classifier::SUMMARY, "Tells three classes apart by a linear layer.");
//! ```

use std::cell::RefCell;

use crate::bindings::weft::train::training as contract;
use crate::hyper::{HyperParameters, Setting};
use crate::nn::Mode;
use crate::tensor::TensorType;
use crate::{Error, Metric, Path, Result, Tensor, data, loss, metric};

/// What the host may know of a trainer before it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// It has an `update`.
    pub updates: bool,
    /// It needs no data set.
    pub makes_data: bool,
    /// The loss has one minimum.
    pub convex: bool,
    /// A step does the same operations for every batch of a shape.
    pub traceable: bool,
}

impl Traits {
    /// Of most trainers.
    pub const USUAL: Self = Self { updates: false, makes_data: false, convex: false, traceable: true };
}

impl From<Traits> for contract::Traits {
    fn from(traits: Traits) -> Self {
        let Traits { updates, makes_data, convex, traceable } = traits;
        [(updates, Self::UPDATES), (makes_data, Self::MAKES_DATA), (convex, Self::CONVEX), (traceable, Self::TRACEABLE)]
            .into_iter()
            .filter(|(given, _)| *given)
            .fold(Self::empty(), |all, (_, one)| all | one)
    }
}

/// A function that trains a model; [`#[weft_sdk::trainer]`](macro@crate::trainer) on the `impl` exports it.
pub trait Trainer: Sized + 'static {
    /// What a caller may choose; `()` for nothing.
    type Parameters: HyperParameters;

    /// What it is, in a line. The attribute fills it in from the doc comment of the `impl`.
    const SUMMARY: &'static str = "";

    /// What the host may do with it. The attribute fills it in.
    const TRAITS: Traits = Traits::USUAL;

    /// Declares the model's tensors, and an optimizer.
    fn init(parameters: Self::Parameters, path: &Path) -> Result<Self>;

    /// What the model makes of samples: one row for each.
    fn forward(&self, x: &Tensor, mode: Mode) -> Result<Tensor>;

    /// What it makes of the samples of this call; for a trainer that takes sparse ones too.
    fn output(&self, mode: Mode) -> Result<Tensor> {
        self.forward(&data::features()?, mode)
    }

    /// The mean over the samples: cross entropy of classes, mean square error of values.
    fn loss(&self, output: &Tensor, labels: &Tensor) -> Result<Tensor> {
        loss::by_labels(output, labels)
    }

    /// One step on one batch: forward, loss, backward. The host applies the optimizer after it.
    fn step(&self) -> Result<Report> {
        let output = self.output(Mode::Training)?;
        let loss = self.loss(&output, &data::labels()?)?;
        loss.backward()?;
        Ok(Report { loss, samples: data::samples() })
    }

    /// How good the model is on one batch: the loss, and of classes the accuracy.
    fn evaluate(&self) -> Result<Vec<Metric>> {
        let output = self.output(Mode::Evaluation)?;
        let labels = data::labels()?;
        let mut metrics = vec![Metric::loss(self.loss(&output, &labels)?)];
        if labels.ty() != TensorType::F32 {
            metrics.push(Metric::accuracy(metric::accuracy(&output, &labels)?));
        }
        Ok(metrics)
    }

    /// What an optimizer cannot say: statistics of all workers into weights.
    fn update(&self) -> Result<()> {
        Ok(())
    }

    /// What the model makes of the samples of this call.
    fn infer(&self) -> Result<Tensor> {
        self.output(Mode::Evaluation)
    }
}

/// What came of a step.
#[derive(Clone, Debug)]
pub struct Report {
    /// The mean over the samples, one number.
    pub loss: Tensor,
    pub samples: u32,
}

/// What a trainer says of itself.
pub fn describe<T: Trainer>() -> contract::Description {
    contract::Description {
        summary: T::SUMMARY.to_owned(),
        traits: T::TRAITS.into(),
        hyper_parameters: <T::Parameters as HyperParameters>::describe(),
    }
}

/// A trainer from its `init` to the end of the component's instance.
pub struct Instance<T>(RefCell<Option<T>>);

impl<T: Trainer> Instance<T> {
    pub const fn new() -> Self {
        Self(RefCell::new(None))
    }

    pub fn init(&self, settings: Vec<Setting>) -> Result<()> {
        let parameters = T::Parameters::parse(settings)?;
        // What was declared before goes first: its handles count.
        *self.borrow_mut()? = None;
        let trainer = T::init(parameters, &Path::root())?;
        *self.borrow_mut()? = Some(trainer);
        Ok(())
    }

    /// A call to what `init` has made.
    pub fn call<R>(&self, name: &str, call: impl FnOnce(&T) -> Result<R>) -> Result<R> {
        let trainer = self.0.try_borrow().map_err(|_| Error::other(format!("`{name}` was called within `init`")))?;
        match &*trainer {
            Some(trainer) => call(trainer),
            None => Err(Error::other(format!("`{name}` was called before `init`: there is no model yet"))),
        }
    }

    fn borrow_mut(&self) -> Result<std::cell::RefMut<'_, Option<T>>> {
        self.0.try_borrow_mut().map_err(|_| Error::other("`init` was called within another call"))
    }
}

impl<T: Trainer> Default for Instance<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(target_arch = "wasm32")]
pub mod export {
    //! Results in the types of the contract.

    use super::Report;
    use crate::bindings::weft::train::tensor::Tensor as RawTensor;
    use crate::bindings::weft::train::training as contract;
    use crate::{Metric, Result, Tensor};

    pub fn report(report: Report) -> Result<contract::StepReport> {
        Ok(contract::StepReport { loss: report.loss.into_raw()?, samples: report.samples })
    }

    pub fn metrics(metrics: Vec<Metric>) -> Result<Vec<contract::Metric>> {
        let metric = |Metric { name, value }| Ok(contract::Metric { name, value: value.into_raw()? });
        metrics.into_iter().map(metric).collect()
    }

    pub fn tensor(tensor: Tensor) -> Result<RawTensor> {
        tensor.into_raw()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hyper::Value;

    struct Nothing;

    impl Trainer for Nothing {
        type Parameters = ();

        fn init((): (), _: &Path) -> Result<Self> {
            Ok(Self)
        }

        fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
            Ok(x.clone())
        }
    }

    #[test]
    fn a_call_before_init_says_so() {
        let instance = Instance::<Nothing>::new();
        assert_eq!(
            instance.call("step", |_| Ok(())),
            Err(Error::other("`step` was called before `init`: there is no model yet"))
        );
        instance.init(Vec::new()).unwrap();
        assert_eq!(instance.call("step", |_| Ok(7)), Ok(7));
    }

    #[test]
    fn settings_that_are_refused_leave_the_model_as_it_was() {
        let instance = Instance::<Nothing>::new();
        instance.init(Vec::new()).unwrap();
        let setting = Setting { name: "width".into(), value: Value::Integer(3) };
        assert_eq!(instance.init(vec![setting]), Err(Error::bad_input("no hyper-parameter `width`; there are none")));
        assert!(instance.call("step", |_| Ok(())).is_ok());
    }
}

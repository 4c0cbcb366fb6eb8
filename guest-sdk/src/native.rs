//! A trainer run in this process, for its own tests: what a node does with it, for one worker and without a sandbox.
//!
//! ```
//! use weft_sdk::native::{Batch, Session};
//! use weft_sdk::nn::{Linear, Mode};
//! use weft_sdk::optim::Sgd;
//! use weft_sdk::{Path, Result, Tensor, Trainer};
//!
//! struct Line(Linear);
//!
//! impl Trainer for Line {
//!     type Parameters = ();
//!
//!     fn init((): (), path: &Path) -> Result<Self> {
//!         Sgd::default().declare()?;
//!         Ok(Self(Linear::new(path, 1, 1)?))
//!     }
//!
//!     fn forward(&self, x: &Tensor, _: Mode) -> Result<Tensor> {
//!         self.0.forward(x)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let mut session = Session::<Line>::new(&[])?;
//! let batch = Batch::new(Tensor::new(&[0.0, 1.0, 2.0], &[3, 1])?, Tensor::new(&[1.0, 3.0, 5.0], &[3, 1])?);
//! for _ in 0..200 {
//!     session.step(&batch, 0.1)?;
//! }
//! assert!(session.evaluate(&batch)?["loss"] < 1e-3);
//! assert!((session.tensor("weight")?.item()? - 2.0).abs() < 0.1);
//! # Ok(())
//! # }
//! ```

use std::collections::BTreeMap;
use std::marker::PhantomData;

use crate::data::Csr;
use crate::host::data as host;
use crate::host::native::{model, no_gradients};
use crate::hyper::{Setting, Value};
use crate::model::Role;
use crate::trainer::Instance;
use crate::{Report, Result, Tensor, Trainer};

/// Samples and what they should become.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    samples: u32,
    features: Option<Tensor>,
    sparse: Option<Csr>,
    labels: Option<Tensor>,
}

impl Batch {
    /// For a trainer that makes its own.
    pub fn empty() -> Self {
        Self::default()
    }

    pub fn new(features: Tensor, labels: Tensor) -> Self {
        Self { samples: features.size(0), features: Some(features), sparse: None, labels: Some(labels) }
    }

    /// Rows without labels.
    pub fn unlabelled(features: Tensor) -> Self {
        Self { samples: features.size(0), features: Some(features), ..Self::default() }
    }

    pub fn sparse(features: Csr, labels: Option<Tensor>) -> Self {
        Self { samples: features.offsets.size(0) - 1, features: None, sparse: Some(features), labels }
    }

    fn give(&self) -> Result<()> {
        let share = |tensor: &Option<Tensor>| tensor.as_ref().map(|tensor| tensor.raw().share()).transpose();
        let sparse = |csr: &Csr| -> Result<host::Csr> {
            Ok(host::Csr {
                offsets: csr.offsets.raw().share()?,
                columns: csr.columns.raw().share()?,
                values: csr.values.raw().share()?,
                width: csr.width,
            })
        };
        host::give(host::Batch {
            samples: self.samples,
            features: share(&self.features)?,
            sparse: self.sparse.as_ref().map(sparse).transpose()?,
            labels: share(&self.labels)?,
        });
        Ok(())
    }
}

/// A trainer from its `init` on. One at a time per thread.
pub struct Session<T> {
    settings: Vec<Setting>,
    trainer: Instance<T>,
    thread_bound: PhantomData<*const ()>,
}

impl<T: Trainer> Session<T> {
    /// With these hyper-parameters. What was declared on this thread before is forgotten.
    pub fn new(settings: &[(&str, Value)]) -> Result<Self> {
        model::reset();
        let setting = |(name, value): &(&str, Value)| Setting { name: (*name).into(), value: value.clone() };
        let settings: Vec<Setting> = settings.iter().map(setting).collect();
        let session = Self { trainer: Instance::new(), settings, thread_bound: PhantomData };
        session.trainer.init(session.settings.clone())?;
        Ok(session)
    }

    /// One step on a batch, and the optimizer's after it. Gives the loss before it.
    pub fn step(&mut self, batch: &Batch, rate: f32) -> Result<f32> {
        batch.give()?;
        model::clear_gradients();
        let Report { loss, .. } = self.trainer.call("step", T::step)?;
        model::descend(rate)?;
        loss.item()
    }

    /// The trainer's own `update`, after which statistics are zero again.
    pub fn update(&mut self) -> Result<()> {
        let _paused = no_gradients();
        self.trainer.call("update", T::update)?;
        model::clear_statistics()
    }

    /// Its metrics of a batch, by name.
    pub fn evaluate(&self, batch: &Batch) -> Result<BTreeMap<String, f32>> {
        batch.give()?;
        let _paused = no_gradients();
        let metrics = self.trainer.call("evaluate", T::evaluate)?;
        metrics.into_iter().map(|metric| Ok((metric.name, metric.value.item()?))).collect()
    }

    /// What it makes of a batch.
    pub fn infer(&self, batch: &Batch) -> Result<Tensor> {
        batch.give()?;
        let _paused = no_gradients();
        self.trainer.call("infer", T::infer)
    }

    /// How many numbers are trained.
    pub fn parameters(&self) -> u64 {
        let weights = model::declared().into_iter().filter(|(_, role, _)| *role == Role::Weight);
        weights.map(|(_, _, dimensions)| dimensions.into_iter().map(u64::from).product::<u64>()).sum()
    }

    /// The names of all that was declared, in order.
    pub fn names(&self) -> Vec<String> {
        model::declared().into_iter().map(|(name, ..)| name).collect()
    }

    /// What was declared under a name.
    pub fn tensor(&self, name: &str) -> Result<Tensor> {
        model::find(name).map(Tensor::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Initial;
    use crate::nn::Mode;
    use crate::optim::{self, Adagrad, Adam, AdamW, RmsProp, Schedule, Sgd};
    use crate::{Error, Path};

    /// One weight, whose loss is what it is.
    struct Slope(Tensor);

    #[derive(crate::HyperParameters)]
    struct Parameters {
        #[hyper(default = "sgd")]
        optimizer: String,
        #[hyper(default = 0.0)]
        clip: f32,
        #[hyper(default = "none")]
        schedule: String,
    }

    impl Trainer for Slope {
        type Parameters = Parameters;

        fn init(parameters: Parameters, path: &Path) -> Result<Self> {
            match parameters.optimizer.as_str() {
                "adam" => Adam::default().declare()?,
                "adamw" => AdamW::default().declare()?,
                "rmsprop" => RmsProp::default().declare()?,
                "adagrad" => Adagrad::default().declare()?,
                _ => Sgd::default().declare()?,
            }
            if parameters.clip > 0.0 {
                optim::clip_gradients(parameters.clip)?;
            }
            match parameters.schedule.as_str() {
                "rise" => Schedule::constant().warm_up(2).declare()?,
                "steps" => Schedule::stepwise(1, 0.5).declare()?,
                "wave" => Schedule::cosine(2, 0.0).declare()?,
                "line" => Schedule::linear(2, 0.5).declare()?,
                "nonsense" => Schedule::linear(0, 0.5).declare()?,
                _ => {}
            }
            Ok(Self(path.weight("weight", &[], Initial::Constant(1.0))?))
        }

        fn forward(&self, _: &Tensor, _: Mode) -> Result<Tensor> {
            Ok(self.0.clone())
        }

        fn step(&self) -> Result<Report> {
            let loss = (&self.0 * 3.0)?;
            loss.backward()?;
            Ok(Report { loss, samples: 1 })
        }
    }

    fn weight_after_a_step(settings: &[(&str, Value)]) -> f32 {
        let mut session = Session::<Slope>::new(settings).unwrap();
        assert_eq!(session.step(&Batch::empty(), 0.1), Ok(3.0));
        session.tensor("weight").unwrap().item().unwrap()
    }

    #[test]
    fn every_optimizer_takes_its_first_step_as_its_formula_says() {
        for (name, expected) in [("sgd", 0.7), ("adam", 0.9), ("adamw", 0.899), ("rmsprop", 0.0), ("adagrad", 0.9)] {
            let weight = weight_after_a_step(&[("optimizer", Value::Text(name.into()))]);
            assert!((weight - expected).abs() < 1e-4, "{name}: {weight}");
        }
    }

    #[test]
    fn gradients_are_clipped_before_the_step() {
        let weight = weight_after_a_step(&[("clip", Value::Real(0.5))]);
        assert!((weight - 0.95).abs() < 1e-4, "{weight}");
    }

    #[test]
    fn the_rate_follows_the_schedule() {
        let cases = [
            ("none", [0.1, 0.1, 0.1]),
            ("rise", [0.05, 0.1, 0.1]),
            ("steps", [0.1, 0.05, 0.025]),
            ("wave", [0.1, 0.05, 0.0]),
            ("line", [0.1, 0.075, 0.05]),
        ];
        for (name, rates) in cases {
            let mut session = Session::<Slope>::new(&[("schedule", Value::Text(name.into()))]).unwrap();
            let mut expected = 1.0;
            for rate in rates {
                session.step(&Batch::empty(), 0.1).unwrap();
                expected -= 3.0 * rate;
                let weight = session.tensor("weight").unwrap().item().unwrap();
                assert!((weight - expected).abs() < 1e-5, "{name}: {weight} instead of {expected}");
            }
        }
        let error = Session::<Slope>::new(&[("schedule", Value::Text("nonsense".into()))]).err().unwrap();
        assert!(error.to_string().contains("at least one step"), "{error}");
    }

    #[test]
    fn a_name_is_declared_once() {
        let path = Path::root().at("layer");
        path.buffer("twice", &[1], Initial::Constant(0.0)).unwrap();
        let error = path.buffer("twice", &[1], Initial::Constant(0.0)).unwrap_err();
        assert!(matches!(&error, Error::Conflict(message) if message.contains("`layer.twice`")), "{error}");
    }

    #[test]
    fn data_that_is_not_there_is_said_to_be_missing() {
        let session = Session::<Slope>::new(&[]).unwrap();
        let error = session.infer(&Batch::empty()).unwrap_err();
        assert_eq!(error, Error::not_found("the samples have no dense features"));
    }
}

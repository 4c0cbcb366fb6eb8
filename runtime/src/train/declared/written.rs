//! How a plan is written down, so that a worker elsewhere can say what its trainer declared.
//!
//! The definitions repeat those of the tensor library, which knows no formats. One that no longer fits does not compile.
//! What is read is declared anew, so that nothing is taken that a trainer could not have declared.

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use weft_gpu::Shape;
use weft_gpu::op::{Adagrad, Adam, Optimizer, RmsProp, Sgd};
use weft_gpu::schedule::{Decay, Schedule};

use super::{Initial, Plan, Role, TensorDeclaration};

#[derive(Serialize, Deserialize)]
struct WrittenPlan {
    tensors: Vec<WrittenTensor>,
    optimizer: Option<WrittenOptimizer>,
    clip: Option<f32>,
    #[serde(with = "ScheduleFields")]
    schedule: Schedule,
}

#[derive(Serialize, Deserialize)]
struct WrittenTensor {
    name: String,
    role: Role,
    shape: Vec<usize>,
    initial: Initial,
}

#[derive(Serialize, Deserialize)]
struct WrittenOptimizer(#[serde(with = "OptimizerFields")] Optimizer);

#[derive(Serialize, Deserialize)]
#[serde(remote = "Optimizer")]
enum OptimizerFields {
    Sgd(#[serde(with = "SgdFields")] Sgd),
    Adam(#[serde(with = "AdamFields")] Adam),
    AdamW(#[serde(with = "AdamFields")] Adam),
    RmsProp(#[serde(with = "RmsPropFields")] RmsProp),
    Adagrad(#[serde(with = "AdagradFields")] Adagrad),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Sgd")]
struct SgdFields {
    momentum: f32,
    dampening: f32,
    nesterov: bool,
    weight_decay: f32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Adam")]
struct AdamFields {
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    weight_decay: f32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "RmsProp")]
struct RmsPropFields {
    decay: f32,
    epsilon: f32,
    momentum: f32,
    weight_decay: f32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Adagrad")]
struct AdagradFields {
    epsilon: f32,
    rate_decay: f32,
    weight_decay: f32,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Schedule")]
struct ScheduleFields {
    warm_up: u32,
    #[serde(with = "DecayFields")]
    decay: Decay,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Decay")]
enum DecayFields {
    None,
    Stepwise { every: u32, factor: f32 },
    Cosine { steps: u32, floor: f32 },
    Linear { steps: u32, floor: f32 },
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tensor = |tensor: &TensorDeclaration| WrittenTensor {
            name: tensor.name.clone(),
            role: tensor.role,
            shape: tensor.shape.to_vec(),
            initial: tensor.initial,
        };
        let written = WrittenPlan {
            tensors: self.tensors.iter().map(tensor).collect(),
            optimizer: self.optimizer.map(WrittenOptimizer),
            clip: self.clip,
            schedule: self.schedule,
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let WrittenPlan { tensors, optimizer, clip, schedule } = WrittenPlan::deserialize(deserializer)?;
        let mut plan = Self { optimizer: optimizer.map(|written| written.0), clip, schedule, ..Self::default() };
        for WrittenTensor { name, role, shape, initial } in tensors {
            let shape = Shape::new(&shape).map_err(D::Error::custom)?;
            plan.declare(TensorDeclaration { name, role, shape, initial }).map_err(D::Error::custom)?;
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(optimizer: Option<Optimizer>, decay: Decay) -> Plan {
        let schedule = Schedule { warm_up: 3, decay };
        let mut plan = Plan { optimizer, clip: Some(0.5), schedule, ..Plan::default() };
        for (name, role, initial) in [
            ("weight", Role::Weight, Initial::Uniform { low: -0.1, high: 0.1 }),
            ("mean", Role::Buffer, Initial::Constant(-0.0)),
            ("count", Role::Statistic, Initial::Constant(0.0)),
            ("own", Role::Local, Initial::Normal { mean: 0.0, deviation: f32::MIN_POSITIVE }),
        ] {
            let (name, shape) = (name.to_owned(), Shape::new(&[2, 3]).unwrap());
            plan.declare(TensorDeclaration { name, role, shape, initial }).unwrap();
        }
        plan
    }

    #[test]
    fn a_plan_is_read_as_it_was_written() {
        let sgd = Sgd { momentum: 0.9, dampening: 0.1, nesterov: false, weight_decay: 1e-4 };
        for (optimizer, decay) in [
            (None, Decay::None),
            (Some(Optimizer::Sgd(sgd)), Decay::Stepwise { every: 7, factor: 0.1 }),
            (Some(Optimizer::Adam(Adam::default())), Decay::Cosine { steps: 9, floor: 0.2 }),
            (Some(Optimizer::AdamW(Adam::default())), Decay::Linear { steps: 1, floor: 0.0 }),
            (Some(Optimizer::RmsProp(RmsProp::default())), Decay::None),
            (Some(Optimizer::Adagrad(Adagrad::default())), Decay::None),
        ] {
            let plan = plan(optimizer, decay);
            let packed = rmp_serde::to_vec_named(&plan).unwrap();
            let read: Plan = rmp_serde::from_slice(&packed).unwrap();
            assert_eq!(read, plan);
            assert_eq!(read.places(Role::Local), plan.places(Role::Local));
        }
    }

    #[test]
    fn what_no_trainer_could_declare_is_not_read() {
        let written = serde_json::to_value(plan(None, Decay::None)).unwrap();
        assert!(serde_json::from_value::<Plan>(written.clone()).is_ok());
        for (at, value) in [
            ("/tensors/0/name", serde_json::json!("mean")),
            ("/tensors/0/name", serde_json::json!("")),
            ("/tensors/0/shape", serde_json::json!([u64::MAX, u64::MAX])),
            ("/tensors/0/shape", serde_json::json!([1, 1, 1, 1, 1, 1, 1, 1, 1])),
        ] {
            let mut other = written.clone();
            *other.pointer_mut(at).unwrap() = value;
            assert!(serde_json::from_value::<Plan>(other).is_err(), "{at}");
        }
    }
}

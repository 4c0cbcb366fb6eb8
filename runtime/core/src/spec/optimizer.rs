//! An optimizer that a job asks for instead of the one that its function declares.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::BadSpec;
use crate::sync::words::words;

/// Which optimizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OptimizerKind {
    Sgd,
    Adam,
    AdamW,
    RmsProp,
    Adagrad,
}

words!(OptimizerKind, "an optimizer", "sgd" => Sgd, "adam" => Adam, "adam-w" => AdamW, "rms-prop" => RmsProp, "adagrad" => Adagrad);

/// The optimizer of a job, instead of the one that its function declares. What is left out has the usual value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OptimizerSpec {
    pub kind: OptimizerKind,
    /// `sgd` and `rms-prop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub momentum: Option<f32>,
    /// `sgd`: Nesterov's momentum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nesterov: Option<bool>,
    /// `adam` and `adam-w`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta1: Option<f32>,
    /// `adam` and `adam-w`; `rms-prop` calls it its decay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beta2: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epsilon: Option<f32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight_decay: Option<f32>,
    /// The largest norm that all gradients together may have; larger ones are scaled down to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<f32>,
}

impl OptimizerSpec {
    pub fn new(kind: OptimizerKind) -> Self {
        let (momentum, nesterov, beta1, beta2) = (None, None, None, None);
        Self { kind, momentum, nesterov, beta1, beta2, epsilon: None, weight_decay: None, clip: None }
    }

    pub(super) fn check(&self) -> Result<(), BadSpec> {
        use OptimizerKind::{Adam, AdamW, RmsProp, Sgd};
        let bad = |problem: String| Err(BadSpec::new("optimizer", problem));
        let takes = |name: &str, is_given: bool, kinds: &[OptimizerKind]| match is_given && !kinds.contains(&self.kind)
        {
            true => bad(format!("`{}` takes no `{name}`", self.kind)),
            false => Ok(()),
        };
        takes("momentum", self.momentum.is_some(), &[Sgd, RmsProp])?;
        takes("nesterov", self.nesterov.is_some(), &[Sgd])?;
        takes("beta1", self.beta1.is_some(), &[Adam, AdamW])?;
        takes("beta2", self.beta2.is_some(), &[Adam, AdamW, RmsProp])?;
        takes("epsilon", self.epsilon.is_some(), &[Adam, AdamW, RmsProp, OptimizerKind::Adagrad])?;
        let fractions = [("momentum", self.momentum), ("beta1", self.beta1), ("beta2", self.beta2)];
        for (name, value) in fractions.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            if !(0.0..1.0).contains(&value) {
                return bad(format!("`{name}` {value} must be at least 0 and below 1"));
            }
        }
        for (name, value) in [("epsilon", self.epsilon), ("clip", self.clip)] {
            if let Some(value) = value.filter(|value| !(*value > 0.0 && value.is_finite())) {
                return bad(format!("`{name}` {value} must be a number above 0"));
            }
        }
        if let Some(decay) = self.weight_decay.filter(|decay| !(*decay >= 0.0 && decay.is_finite())) {
            return bad(format!("`weight_decay` {decay} must be 0 or more"));
        }
        if self.nesterov == Some(true) && self.momentum.unwrap_or(0.0) == 0.0 {
            return bad("`nesterov` needs a `momentum`".to_owned());
        }
        Ok(())
    }
}

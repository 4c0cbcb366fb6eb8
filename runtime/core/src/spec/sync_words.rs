//! How workers work together, in words.

use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{BadSpec, JobSpec, K, NumberOrText};
use crate::sync::{Admm, ChannelKind, Pace, Penalty, RuleKind, Topology};

/// The codec that leaves everything as it is.
pub const PLAIN: &str = "plain";

/// How strongly ADMM pulls workers together, and penalises weights, unless something else is asked for: as in LambdaML.
const RHO: f32 = 0.01;
const LAMBDA: f32 = 0.01;
/// How often a worker goes through its samples in a round of ADMM (LambdaML §5.1).
const INNER_EPOCHS: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// Weights that a job may say are not penalised. Their names are as long as those that a trainer may declare, or refused.
pub const MAX_UNPENALISED: usize = 256;

/// What workers exchange, along which edges, when, how it is encoded, and through what it travels. All of it may be left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SyncWords {
    /// `gradient-average`, `k-average`, `statistic-sum` or `admm`; chosen by `k` and the trainer if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// For k-average: steps from one average to the next, `epoch`, `3epochs`, or `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<NumberOrText>)]
    pub k: Option<K>,
    /// `memory`, `leader`, `scatter` or `scatter:16` (shards), `tree`, `tree:paper` or `tree:1,5,22,100`, `peers`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topology: Option<String>,
    /// `barrier`, `staleness:2`, `on-arrival`, `overwrite`, `quorum:3` or `quorum:3,10`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pace: Option<String>,
    /// `plain`, `f16`, `qsgd:4`, `top-k:0.01` or `significance:0.01`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub codec: Option<String>,
    /// `memory`, `store` or `blobs`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub channel: Option<String>,
    /// For ADMM: how strongly workers are pulled to the model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rho: Option<f32>,
    /// For ADMM: how strongly large weights are penalised.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f32>,
    /// For ADMM: `l1` or `l2`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<String>,
    /// For ADMM: how often a worker goes through its samples in a round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inner_epochs: Option<u32>,
    /// For ADMM: ends the job when workers agree this closely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
    /// For ADMM: names of weights that are not penalised, beside those that are called `bias`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unpenalised: Option<Vec<String>>,
}

/// The words, each read by itself. Whether they go together is not looked at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct ReadSync {
    pub rule: Option<RuleKind>,
    pub k: Option<K>,
    pub topology: Topology,
    pub pace: Pace,
    pub codec: String,
    pub channel: ChannelKind,
    pub admm: Admm,
    pub tolerance: Option<f64>,
    #[serde(default)]
    pub unpenalised: Vec<String>,
}

impl SyncWords {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// A word that may be given in two places, but not with two meanings.
fn once<T: PartialEq + Clone>(word: &'static str, one: &Option<T>, other: &Option<T>) -> Result<Option<T>, BadSpec> {
    match (one, other) {
        (Some(one), Some(other)) if one != other => {
            Err(BadSpec::new(word, "it is given twice, by itself and in `sync`, and not the same"))
        }
        (one, other) => Ok(one.clone().or_else(|| other.clone())),
    }
}

impl ReadSync {
    pub fn of(spec: &JobSpec) -> Result<Self, BadSpec> {
        let words = &spec.sync;
        let rule = once("rule", &spec.rule, &words.rule)?;
        let rule: Option<RuleKind> =
            rule.map(|rule| rule.parse()).transpose().map_err(|error| BadSpec::new("rule", error))?;
        let k = once("k", &spec.k, &words.k)?;
        let pace = once("pace", &spec.pace, &words.pace)?;
        let pace: Pace = match pace {
            Some(pace) => pace.parse().map_err(|error| BadSpec::new("pace", error))?,
            None => Pace::Barrier,
        };
        let topology: Option<Topology> = match &words.topology {
            Some(topology) => Some(topology.parse().map_err(|error| BadSpec::new("topology", error))?),
            None => None,
        };
        // Peers are what a quorum is about.
        let usual = if matches!(pace, Pace::Quorum(_)) { Topology::Peers } else { Topology::Memory };
        let codec = once("codec", &spec.codec, &words.codec)?.unwrap_or_else(|| PLAIN.to_owned());
        let channel = match &words.channel {
            Some(channel) => channel.parse().map_err(|error| BadSpec::new("channel", error))?,
            None => ChannelKind::Memory,
        };
        let this = Self {
            rule,
            k,
            topology: topology.unwrap_or(usual),
            pace,
            codec,
            channel,
            admm: admm(words, rule)?,
            tolerance: words.tolerance,
            unpenalised: words.unpenalised.clone().unwrap_or_default(),
        };
        this.check()?;
        Ok(this)
    }

    fn check(&self) -> Result<(), BadSpec> {
        if self.k.is_some_and(|k| k.every().is_none()) {
            return Err(BadSpec::new("k", "0 steps: use at least 1, or `epoch`"));
        }
        match (self.rule, self.k) {
            (Some(RuleKind::KAverage), None) => {
                return Err(BadSpec::new("k", "k-average needs it: a number of steps, `epoch`, `3epochs` or `end`"));
            }
            (Some(RuleKind::GradientAverage | RuleKind::StatisticSum | RuleKind::Admm), Some(_)) => {
                return Err(BadSpec::new("k", "only k-average takes it"));
            }
            _ => {}
        }
        Ok(())
    }
}

fn admm(words: &SyncWords, rule: Option<RuleKind>) -> Result<Admm, BadSpec> {
    let given = [
        ("rho", words.rho.is_some()),
        ("lambda", words.lambda.is_some()),
        ("penalty", words.penalty.is_some()),
        ("inner_epochs", words.inner_epochs.is_some()),
        ("tolerance", words.tolerance.is_some()),
        ("unpenalised", words.unpenalised.is_some()),
    ];
    if rule != Some(RuleKind::Admm)
        && let Some((word, _)) = given.into_iter().find(|(_, given)| *given)
    {
        return Err(BadSpec::new(word, "only the rule `admm` takes it"));
    }
    let (rho, lambda) = (words.rho.unwrap_or(RHO), words.lambda.unwrap_or(LAMBDA));
    if !(rho > 0.0 && rho.is_finite()) {
        return Err(BadSpec::new("rho", format!("{rho} must be a number above 0")));
    }
    if !(lambda >= 0.0 && lambda.is_finite()) {
        return Err(BadSpec::new("lambda", format!("{lambda} must be 0 or more")));
    }
    if let Some(tolerance) = words.tolerance.filter(|tolerance| !(*tolerance > 0.0 && tolerance.is_finite())) {
        return Err(BadSpec::new("tolerance", format!("{tolerance} must be a number above 0")));
    }
    let unpenalised = words.unpenalised.as_deref().unwrap_or_default();
    if unpenalised.len() > MAX_UNPENALISED {
        let problem = format!("{} names are more than the {MAX_UNPENALISED} that are allowed", unpenalised.len());
        return Err(BadSpec::new("unpenalised", problem));
    }
    let penalty = match words.penalty.as_deref() {
        None => Penalty::L2,
        Some(text) => text.parse().map_err(|error| BadSpec::new("penalty", error))?,
    };
    let epochs = match words.inner_epochs {
        None => INNER_EPOCHS,
        Some(epochs) => NonZeroU32::new(epochs).ok_or_else(|| BadSpec::new("inner_epochs", "0: use at least 1"))?,
    };
    Ok(Admm { rho, lambda, penalty, epochs })
}

//! Which rules, topologies, paces, codecs, channels, fan-outs and losses go together, and why others do not.
//!
//! [`check`] is asked before a job is queued; [`table`] writes all its answers down for the documentation.

use std::fmt::Write;

use super::words::words;
use super::{ChannelKind, OnLoss, Pace, RuleKind, Topology};

/// Who merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TopologyKind {
    Memory,
    Leader,
    Scatter,
    Tree,
    Peers,
}

words!(TopologyKind, "a kind of topology",
    "memory" => Memory, "leader" => Leader, "scatter" => Scatter, "tree" => Tree, "peers" => Peers);

impl From<&Topology> for TopologyKind {
    fn from(topology: &Topology) -> Self {
        match topology {
            Topology::Memory => Self::Memory,
            Topology::Leader => Self::Leader,
            Topology::Scatter { .. } => Self::Scatter,
            Topology::Tree(_) => Self::Tree,
            Topology::Peers => Self::Peers,
        }
    }
}

/// When.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PaceKind {
    Barrier,
    Staleness,
    OnArrival,
    Overwrite,
    Quorum,
}

words!(PaceKind, "a kind of pace", "barrier" => Barrier, "staleness" => Staleness, "on-arrival" => OnArrival,
    "overwrite" => Overwrite, "quorum" => Quorum);

impl From<Pace> for PaceKind {
    fn from(pace: Pace) -> Self {
        match pace {
            Pace::Barrier => Self::Barrier,
            Pace::Staleness(_) => Self::Staleness,
            Pace::OnArrival => Self::OnArrival,
            Pace::Overwrite => Self::Overwrite,
            Pace::Quorum(_) => Self::Quorum,
        }
    }
}

/// How the workers of a job are to work together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combination {
    pub rule: RuleKind,
    pub topology: TopologyKind,
    pub pace: PaceKind,
    /// Whether the codec is `plain`, which changes nothing.
    pub is_plain: bool,
    pub channel: ChannelKind,
    pub on_loss: OnLoss,
    /// Whether several functions compute one worker's step.
    pub fans_out: bool,
    pub workers: u32,
}

/// Why a combination cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The setting that is best changed.
    pub word: &'static str,
    /// What does not go together, why, and what to use instead.
    pub reason: &'static str,
}

/// Whether these go together. One worker alone exchanges nothing, so all settings of the exchange are fine.
pub fn check(combination: &Combination) -> Result<(), Refused> {
    let Combination { rule, topology, pace, is_plain, channel, on_loss, fans_out, workers } = *combination;
    let refuse = |word, reason| Err(Refused { word, reason });
    if fans_out && rule == RuleKind::StatisticSum {
        return refuse(
            "fan_out",
            "`statistic-sum` cannot be fanned out: a worker counts over its whole share at once and has no gradients \
             of single steps that several functions could average. Use a fan-out of 1 and more workers.",
        );
    }
    if workers <= 1 {
        return Ok(());
    }
    if pace != PaceKind::Barrier && channel != ChannelKind::Memory {
        return refuse(
            "channel",
            "without a barrier, contributions and models stay in the node's memory: the coordinator applies each one the \
             moment it arrives, and a channel would only make it older. Use the channel `memory`, or the pace `barrier`.",
        );
    }
    match (rule, pace) {
        (_, PaceKind::Barrier) => {}
        (RuleKind::GradientAverage, PaceKind::Staleness | PaceKind::OnArrival | PaceKind::Quorum) => {}
        (RuleKind::KAverage, PaceKind::Overwrite) => {}
        (RuleKind::GradientAverage, PaceKind::Overwrite) => {
            return refuse(
                "pace",
                "`overwrite` does not go with `gradient-average`: what a worker hands over becomes the model, and a \
                 gradient is none. Use the rule `k-average`, or the pace `on-arrival`.",
            );
        }
        (RuleKind::KAverage, PaceKind::Staleness | PaceKind::OnArrival) => {
            return refuse(
                "pace",
                "`staleness` and `on-arrival` do not go with `k-average`: each contribution is a step from the model \
                 as it is then, and whole weights are no step. Use the rule `gradient-average`, or the pace \
                 `overwrite` or `barrier`.",
            );
        }
        (RuleKind::KAverage, PaceKind::Quorum) => {
            return refuse(
                "pace",
                "`quorum` does not go with `k-average`: peers average the latest gradients and each takes a step from \
                 its own model. Use the rule `gradient-average`, or the pace `barrier`.",
            );
        }
        (RuleKind::StatisticSum, _) => {
            return refuse(
                "pace",
                "`statistic-sum` goes with the pace `barrier` only: the statistics of a model are those of all shares \
                 together, and some of them, or those of different models, do not add up. Use `barrier`.",
            );
        }
        (RuleKind::Admm, _) => {
            return refuse(
                "pace",
                "`admm` goes with the pace `barrier` only: every worker measures how far it is from the same \
                 agreement, which is not there before all have handed in. Use `barrier`.",
            );
        }
    }
    match (pace, topology) {
        (PaceKind::Barrier, _) | (PaceKind::Quorum, TopologyKind::Peers) => {}
        (PaceKind::Staleness | PaceKind::OnArrival | PaceKind::Overwrite, TopologyKind::Memory) => {}
        (PaceKind::Staleness | PaceKind::OnArrival | PaceKind::Overwrite, _) => {
            return refuse(
                "topology",
                "`staleness`, `on-arrival` and `overwrite` go with the topology `memory` only: contributions come one \
                 by one and the coordinator takes in each at once, so that there is nothing for workers to merge. Use \
                 `memory`.",
            );
        }
        (PaceKind::Quorum, _) => {
            return refuse(
                "topology",
                "`quorum` goes with the topology `peers` only: each worker averages what it sees and has a model of \
                 its own. Use `peers`.",
            );
        }
    }
    match (rule, pace) {
        _ if is_plain => {}
        (RuleKind::StatisticSum, _) => {
            return refuse(
                "codec",
                "`statistic-sum` has no codec: counts must be exact, and nothing makes good in the next round what was \
                 left out of them. Use `plain`.",
            );
        }
        (RuleKind::Admm, _) => {
            return refuse(
                "codec",
                "`admm` has no codec: the agreement and each worker's distance from it must come from the same exact \
                 numbers, or they drift apart. Use `plain`.",
            );
        }
        (_, PaceKind::Overwrite) => {
            return refuse(
                "codec",
                "`overwrite` has no codec: there is no common model that the difference could be taken from. Use \
                 `plain`.",
            );
        }
        _ => {}
    }
    if on_loss == OnLoss::Drop && rule == RuleKind::Admm {
        return refuse(
            "on_loss",
            "`drop` does not go with `admm`: the agreement is one of all shares, and would jump to that of the others \
             and back. Use `wait`: the lost worker goes on with what it had.",
        );
    }
    Ok(())
}

/// What is true of combinations beyond whether they go together.
const NOTES: &str = "\
- With one worker nothing is exchanged, and everything but the fan-out of `statistic-sum` is allowed.
- Topology `memory`: the coordinator merges. Contributions travel to it, and models from it, through the channel.
- A codec with `k-average` encodes the difference to the last model that all workers had.
- A codec in a `tree` encodes what leaves of the tree send; sums of several workers travel as they are, or the error \
would grow with every layer.
";

/// All that [`check`] says, as Markdown.
pub fn table() -> String {
    let mut reasons: Vec<&'static str> = Vec::new();
    let mut cell = |combination: Combination| match check(&combination) {
        Ok(()) => "yes".to_owned(),
        Err(Refused { reason, .. }) => {
            let number = reasons.iter().position(|known| *known == reason).unwrap_or_else(|| {
                reasons.push(reason);
                reasons.len() - 1
            });
            format!("no ({})", number + 1)
        }
    };
    let mut text = String::from("# Which settings go together\n\nThe number says why not.\n\n");
    let columns: Vec<&str> = TopologyKind::ALL.iter().map(|topology| topology.word()).collect();
    heading(&mut text, &["rule", "pace"], &columns);
    for (rule, pace) in rules_and_paces() {
        let cells: Vec<String> =
            TopologyKind::ALL.iter().map(|&topology| cell(Combination { topology, ..plain(rule, pace) })).collect();
        row(&mut text, rule, pace, &cells);
    }
    text.push_str("\nWhere a rule goes with a pace, in every topology that does:\n\n");
    let channels: Vec<String> = ChannelKind::ALL.iter().map(|channel| format!("channel {}", channel.word())).collect();
    let mut columns = vec!["a codec", "on-loss drop", "fan-out"];
    columns.extend(channels.iter().map(String::as_str));
    heading(&mut text, &["rule", "pace"], &columns);
    for (rule, pace) in rules_and_paces() {
        let Some(topology) = topologies(rule, pace).next() else { continue };
        let plain = Combination { topology, ..plain(rule, pace) };
        let mut cells = vec![
            cell(Combination { is_plain: false, ..plain }),
            cell(Combination { on_loss: OnLoss::Drop, ..plain }),
            cell(Combination { fans_out: true, ..plain }),
        ];
        cells.extend(ChannelKind::ALL.iter().map(|&channel| cell(Combination { channel, ..plain })));
        row(&mut text, rule, pace, &cells);
    }
    text.push('\n');
    for (number, reason) in (1..).zip(reasons) {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{number}. {reason}");
    }
    text.push('\n');
    text.push_str(NOTES);
    text
}

/// The plainest of a rule and a pace.
fn plain(rule: RuleKind, pace: PaceKind) -> Combination {
    Combination {
        rule,
        topology: TopologyKind::Memory,
        pace,
        is_plain: true,
        channel: ChannelKind::Memory,
        on_loss: OnLoss::Wait,
        fans_out: false,
        workers: 2,
    }
}

fn rules_and_paces() -> impl Iterator<Item = (RuleKind, PaceKind)> {
    RuleKind::ALL.iter().flat_map(|&rule| PaceKind::ALL.iter().map(move |&pace| (rule, pace)))
}

/// The topologies that a rule goes with at a pace.
fn topologies(rule: RuleKind, pace: PaceKind) -> impl Iterator<Item = TopologyKind> {
    let is_valid =
        move |topology: &TopologyKind| check(&Combination { topology: *topology, ..plain(rule, pace) }).is_ok();
    TopologyKind::ALL.iter().copied().filter(is_valid)
}

fn heading(text: &mut String, first: &[&str], columns: &[&str]) {
    let names: Vec<&str> = first.iter().chain(columns).copied().collect();
    let _ = writeln!(text, "| {} |\n|{}", names.join(" | "), "---|".repeat(names.len()));
}

fn row(text: &mut String, rule: RuleKind, pace: PaceKind, cells: &[String]) {
    let _ = writeln!(text, "| {} | {} | {} |", rule.word(), pace.word(), cells.join(" | "));
}

#[cfg(test)]
mod tests;

//! Following a study until it is over, as a job is followed. Ctrl-C lets it run on.

use weft_core::tune::space::Value;

use super::screen::{Screen, shown};
use crate::api::types::{TrialCounts, TuneDetail};
use crate::cli::client::Client;
use crate::cli::failure::{Interrupted, Reported};
use crate::cli::output::{Output, Style, harmless};
use crate::cli::train::seconds;
use crate::cli::train::watch::{Heard, Told, listen};
use crate::names::Name;
use crate::study::{TuneEvent, TuneState};

impl Told for TuneEvent {
    fn is_last(&self) -> bool {
        matches!(self, Self::State { state, .. } if *state != TuneState::Running)
    }
}

/// Shows progress on stderr, then what it came to on stdout. A study that failed or was stopped is a failure.
pub fn to_its_end(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut screen = Screen::new(&client.tune(name)?, out);
    let followed = listen(name, client, Client::follow_tune, |heard| match heard {
        Heard::Event(event) => {
            if let Some(trial) = screen.asks_for(&event) {
                // Events do not say which values a trial has. Where they cannot be had now, it is shown without.
                if let Ok(page) = client.trials(name, trial.checked_sub(1)) {
                    screen.learn(&page.trials);
                }
            }
            screen.show(&event);
        }
        Heard::Lost(reason) => screen.line(&format!("{reason}; trying again")),
        _ => {}
    });
    screen.close();
    followed.inspect_err(|error| say_how_to_go_on(name, error, out))?;
    let detail = client.tune(name)?;
    out.show(&detail, || summary(&detail, out))?;
    fails_with(detail.tune.state)
}

/// One JSON value for every event.
pub fn as_json(name: &Name, client: &Client, out: &Output) -> anyhow::Result<()> {
    let (mut shown, mut state) = (Ok(()), None);
    let followed = listen(name, client, Client::follow_tune, |heard: Heard<TuneEvent>| match heard {
        Heard::Event(event) => {
            if let TuneEvent::State { state: now, .. } = *event {
                state = Some(now);
            }
            if shown.is_ok() {
                shown = out.show(&event, String::new);
            }
        }
        Heard::Lost(reason) => out.note(format_args!("{reason}; trying again")),
        _ => {}
    });
    followed.inspect_err(|error| say_how_to_go_on(name, error, out))?;
    shown?;
    state.map_or(Ok(()), fails_with)
}

fn fails_with(state: TuneState) -> anyhow::Result<()> {
    match state {
        TuneState::Failed | TuneState::Stopped => Err(Reported.into()),
        TuneState::Running | TuneState::Done => Ok(()),
    }
}

fn say_how_to_go_on(name: &Name, error: &anyhow::Error, out: &Output) {
    if error.is::<Interrupted>() {
        out.diagnose(format_args!(
            "study `{name}` goes on without you: `weft tune watch {name}` follows it, `weft tune stop {name}` stops it"
        ));
    }
}

/// What a study came to.
pub fn summary(detail: &TuneDetail, out: &Output) -> String {
    let mut rows = rows(detail, out);
    let name = &detail.tune.name;
    if detail.tune.best.is_some() {
        rows.push((
            "next",
            format!("weft tune best {name}; weft tune plot {name} --kind parallel --output {name}.svg"),
        ));
    }
    out.fields(&rows)
}

/// What it came to so far.
pub fn rows(detail: &TuneDetail, out: &Output) -> Vec<(&'static str, String)> {
    let tune = &detail.tune;
    let style = match tune.state {
        TuneState::Done => Style::Green,
        TuneState::Failed => Style::Red,
        TuneState::Running | TuneState::Stopped => Style::Yellow,
    };
    let mut rows = vec![("study", tune.name.clone()), ("state", out.paint(style, tune.state.word()))];
    if !tune.reason.is_empty() {
        rows.push(("reason", harmless(&tune.reason)));
    }
    rows.push(("trials", counts(&tune.counts, tune.trials)));
    if let Some(best) = &tune.best {
        rows.push(("best", format!("{} {:.6}, trial {}", harmless(&tune.goal), best.value, best.trial)));
        rows.push(("with", shown(&best.point)));
        rows.extend(best.model.as_ref().map(|model| ("model", format!("weft model pull {model}"))));
    }
    if !detail.importance.is_empty() {
        let shares =
            detail.importance.iter().map(|it| format!("{} {:.0} %", harmless(&it.parameter), 100.0 * it.share));
        rows.push(("mattered", shares.collect::<Vec<_>>().join(", ")));
    }
    let budget = tune.budget.map_or_else(String::new, |budget| format!(" of {budget}"));
    // A sum of nothing may be a zero below zero.
    rows.push(("cost", format!("{:.6}{budget}", 0.0 + tune.spent)));
    rows.push(("time", seconds(tune.seconds)));
    rows
}

/// `12 of 20: 8 done, 3 paused, 1 failed`.
pub fn counts(counts: &TrialCounts, asked: u32) -> String {
    let TrialCounts { waiting, running, paused, done, pruned, stopped, failed } = *counts;
    let named = [
        (done, "done"),
        (running, "running"),
        (waiting, "waiting"),
        (paused, "paused"),
        (pruned, "pruned"),
        (stopped, "stopped"),
        (failed, "failed"),
    ];
    let all: u32 = named.iter().map(|(count, _)| count).sum();
    let parts: Vec<String> =
        named.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!("{count} {word}")).collect();
    let parts = if parts.is_empty() { String::new() } else { format!(": {}", parts.join(", ")) };
    format!("{all} of {asked}{parts}")
}

/// A value as a flag of `weft train` takes it.
pub fn as_flag(name: &str, value: &Value) -> String {
    // Words of a job that have a flag of the same name.
    const FLAGS: [&str; 12] = [
        "lr",
        "batch",
        "global_batch",
        "epochs",
        "steps",
        "workers",
        "fan_out",
        "device",
        "rule",
        "k",
        "pace",
        "codec",
    ];
    let quoted = |text: String| {
        let is_plain = text.chars().all(|letter| letter.is_ascii_alphanumeric() || "._-+:/=".contains(letter));
        if is_plain { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
    };
    if FLAGS.contains(&name) {
        return format!("--{} {}", name.replace('_', "-"), quoted(value.to_string()));
    }
    match name.split_once('.') {
        Some(("optimizer", "kind")) => format!("--optimizer {}", quoted(value.to_string())),
        Some(("optimizer" | "sync", word)) => format!("--{} {}", word.replace('_', "-"), quoted(value.to_string())),
        _ if name == "optimizer" => format!("--optimizer {}", quoted(value.to_string())),
        _ => {
            let own = name.strip_prefix("params.").unwrap_or(name);
            format!("--param {}", quoted(format!("{own}={value}")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_name_only_what_there_is() {
        let some = TrialCounts { done: 8, paused: 3, failed: 1, ..TrialCounts::default() };
        assert_eq!(counts(&some, 20), "12 of 20: 8 done, 3 paused, 1 failed");
        assert_eq!(counts(&TrialCounts::default(), 20), "0 of 20");
    }

    #[test]
    fn values_are_flags_or_parameters_of_the_function() {
        let text = |text: &str| Value::Text(text.to_owned());
        assert_eq!(as_flag("lr", &Value::Number(0.1)), "--lr 0.1");
        assert_eq!(as_flag("global_batch", &Value::Integer(64)), "--global-batch 64");
        assert_eq!(as_flag("optimizer", &text("adam")), "--optimizer adam");
        assert_eq!(as_flag("optimizer.weight_decay", &Value::Number(0.5)), "--weight-decay 0.5");
        assert_eq!(as_flag("units", &Value::Integer(3)), "--param units=3");
        assert_eq!(as_flag("params.k", &text("a b'c")), "--param 'k=a b'\\''c'");
    }
}

//! `weft doctor`: what this machine has, what is wrong with it, and what to do about that.
//!
//! Only looks: nothing is created, changed or downloaded.

use serde::Serialize;

use super::config::SettingsArgs;
use super::failure::Reported;
use super::output::{Output, Style};
use crate::config::{Options, Settings};

mod machine;
mod place;
mod tools;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    Ok,
    /// Works, but something is slower or missing.
    Note,
    /// A node would not start, or not do what its settings say.
    Problem,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    check: &'static str,
    state: State,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    remedy: Option<String>,
}

impl Finding {
    fn ok(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: State::Ok, detail: detail.into(), remedy: None }
    }

    fn note(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: State::Note, detail: detail.into(), remedy: None }
    }

    fn problem(check: &'static str, detail: impl Into<String>) -> Self {
        Self { check, state: State::Problem, detail: detail.into(), remedy: None }
    }

    /// What to do about it.
    fn remedy(mut self, remedy: impl Into<String>) -> Self {
        self.remedy = Some(remedy.into());
        self
    }
}

pub fn run(args: SettingsArgs, out: &Output) -> anyhow::Result<()> {
    let mut findings = Vec::new();
    let settings = match args.resolve() {
        Ok(settings) => {
            findings.push(Finding::ok("settings", "fit together"));
            settings
        }
        Err(error) => {
            let remedy = "correct it; what follows is looked at with the defaults";
            findings.push(Finding::problem("settings", error.to_string()).remedy(remedy));
            Settings::resolve(Options::default(), Options::default())?
        }
    };
    findings.extend(machine::look(&settings));
    findings.extend(place::look(&settings));
    findings.extend(tools::look());
    out.show(&findings, || findings.iter().map(|finding| as_text(finding, out)).collect())?;
    if findings.iter().any(|finding| finding.state == State::Problem) { Err(Reported.into()) } else { Ok(()) }
}

fn as_text(finding: &Finding, out: &Output) -> String {
    let state = match finding.state {
        State::Ok => out.paint(Style::Green, "ok     "),
        State::Note => out.paint(Style::Yellow, "note   "),
        State::Problem => out.paint(Style::Red, "problem"),
    };
    let line = format!("{state}  {:<14}  {}\n", finding.check, finding.detail);
    match &finding.remedy {
        Some(remedy) => format!("{line}{:27}{}\n", "", out.paint(Style::Dim, &format!("-> {remedy}"))),
        None => line,
    }
}

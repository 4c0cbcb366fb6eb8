//! What an error means: its text, what to do about it, and the exit code.

use std::io;
use std::process::ExitCode;

use serde_json::json;

use super::client::ClientError;
use super::output::{Output, StdoutError, Style, harmless};
use crate::api::problem::Kind;

/// How a command ended. `0` is success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// The request was refused, the function failed, or something on this machine went wrong.
    Failed = 1,
    /// Wrong usage; clap's own code.
    Usage = 2,
    /// No node could be reached, or its answer was cut short.
    Unreachable = 3,
    /// The key is missing, unknown, or not allowed to do this.
    Denied = 4,
    /// The node failed, is too busy, or is stopping.
    NodeFailed = 5,
    /// Ctrl-C, as shells have it.
    Interrupted = 130,
}

/// The command line asks for something that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The verb has already shown what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("see above")]
pub struct Reported;

/// Somebody pressed Ctrl-C, and the verb has said what that means.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

fn exit(error: &anyhow::Error) -> Exit {
    if error.is::<Interrupted>() {
        return Exit::Interrupted;
    }
    if error.is::<UsageError>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Url(_) | ClientError::Key) => Exit::Usage,
        Some(
            ClientError::Unreachable { .. }
            | ClientError::Timeout { .. }
            | ClientError::Cut(_)
            | ClientError::HungUp { .. }
            | ClientError::Foreign { .. },
        ) => Exit::Unreachable,
        Some(problem @ ClientError::Problem { .. }) => exit_of_problem(problem.kind().unwrap_or_default()),
        Some(ClientError::Certificate { .. }) | None => Exit::Failed,
    }
}

/// Not by status: a quota that is used up is a 403 too, and a function that traps a 502.
fn exit_of_problem(kind: &str) -> Exit {
    let is_one_of = |kinds: &[Kind]| kinds.iter().any(|known| known.slug() == kind);
    if is_one_of(&[Kind::Unauthenticated, Kind::Forbidden]) {
        Exit::Denied
    } else if is_one_of(&[Kind::Internal, Kind::Draining, Kind::Busy, Kind::RateLimited]) {
        Exit::NodeFailed
    } else {
        Exit::Failed
    }
}

/// What to do about it, where that is not obvious from the error.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    match error.downcast_ref::<ClientError>()? {
        ClientError::Unreachable { refused: true, .. } => {
            Some("is a node running? start one with `weft serve --dev`, or name another with `--url`")
        }
        ClientError::Unreachable { reason, .. } if reason.contains("UnknownIssuer") => {
            Some("give the authority's certificate with `--ca-cert`")
        }
        ClientError::Foreign { .. } => Some("check `--url`: something else may be listening there"),
        ClientError::Timeout { .. } => {
            Some("an invocation can be given longer with `--timeout`; `weft logs NAME` shows what it says meanwhile")
        }
        // The node's own text says what to do.
        ClientError::Problem { problem, .. } if problem.detail.contains("`weft ") => None,
        problem @ ClientError::Problem { path, .. } => hint_for_problem(problem.kind()?, path),
        _ => None,
    }
}

fn hint_for_problem(kind: &str, path: &str) -> Option<&'static str> {
    let is = |known: Kind| known.slug() == kind;
    if is(Kind::Unauthenticated) {
        Some("give a key with `--key`, WEFT_KEY or a profile (`weft profile set`)")
    } else if is(Kind::Forbidden) {
        Some("tenants, the node and backups take the operator's key, functions a tenant's")
    } else if is(Kind::NotFound) && path.starts_with("/v1/tenants") {
        Some("`weft tenant list` lists the tenants")
    } else if is(Kind::NotFound) && path.starts_with("/v1/functions") {
        Some("`weft functions` lists what is deployed")
    } else if is(Kind::NotFound) && path.starts_with("/v1/tunes/") {
        Some("`weft tunes` lists the studies")
    } else if is(Kind::NotFound) && (path == "/v1/jobs" || path == "/v1/tunes") {
        Some("`weft functions`, `weft dataset list` and `weft model list` list what there is")
    } else if is(Kind::NotFound) && path.starts_with("/v1/jobs") {
        Some("`weft jobs` lists the jobs")
    } else if is(Kind::Trapped) {
        Some("`weft logs NAME` has what the function said before")
    } else if is(Kind::Busy) || is(Kind::Draining) || is(Kind::RateLimited) {
        Some("try again in a moment")
    } else {
        None
    }
}

/// Says what went wrong and turns it into an exit code.
pub fn report(error: &anyhow::Error, out: &Output) -> ExitCode {
    if let Some(StdoutError(cause)) = error.downcast_ref()
        && cause.kind() == io::ErrorKind::BrokenPipe
    {
        return ExitCode::SUCCESS;
    }
    let exit = exit(error);
    if !error.is::<Reported>() && !error.is::<Interrupted>() {
        describe(error, exit, out);
    }
    ExitCode::from(exit as u8)
}

fn describe(error: &anyhow::Error, exit: Exit, out: &Output) {
    let (text, hint) = (harmless(&format!("{error:#}")), hint(error));
    let client_error = error.downcast_ref::<ClientError>();
    let problem = match client_error {
        Some(ClientError::Problem { problem, .. }) => Some(problem),
        _ => None,
    };
    if out.is_json() {
        let value = json!({"error": {"detail": text, "hint": hint, "exit_code": exit as u8, "problem": problem}});
        // The text below says it again should this not get through.
        let _ = out.bytes(format!("{value}\n").as_bytes());
    }
    let kind = client_error.and_then(ClientError::kind);
    let case = problem.and_then(|problem| problem.function_error.as_ref());
    let kind = kind.map(|kind| match case {
        Some(case) => format!(" ({kind}: {case})"),
        None => format!(" ({kind})"),
    });
    let kind = out.paint_error(Style::Dim, &harmless(&kind.unwrap_or_default()));
    out.diagnose(format_args!("{} {text}{kind}", out.paint_error(Style::Red, "error:")));
    if let Some(hint) = hint {
        out.diagnose(format_args!("{} {hint}", out.paint_error(Style::Yellow, "hint:")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::problem::TYPE_PREFIX;
    use crate::api::types::Problem;

    fn problem(kind: Kind) -> anyhow::Error {
        let problem = Problem {
            kind: format!("{TYPE_PREFIX}{}", kind.slug()),
            title: String::new(),
            status: kind.status().as_u16(),
            detail: String::new(),
            limit: None,
            word: None,
            function_error: None,
            invocation: None,
        };
        ClientError::Problem { problem: Box::new(problem), path: "/v1/functions/echo".to_owned() }.into()
    }

    #[test]
    fn exit_codes_say_whose_fault_it_is() {
        for (error, expected) in [
            (problem(Kind::NotFound), Exit::Failed),
            (problem(Kind::Trapped), Exit::Failed),
            (problem(Kind::QuotaExceeded), Exit::Failed),
            (problem(Kind::Unauthenticated), Exit::Denied),
            (problem(Kind::Forbidden), Exit::Denied),
            (problem(Kind::Busy), Exit::NodeFailed),
            (problem(Kind::Internal), Exit::NodeFailed),
            (ClientError::Cut("reset".to_owned()).into(), Exit::Unreachable),
            (UsageError("no".to_owned()).into(), Exit::Usage),
            (Interrupted.into(), Exit::Interrupted),
            (anyhow::anyhow!("disk full"), Exit::Failed),
        ] {
            assert_eq!(exit(&error), expected, "{error:?}");
        }
    }
}

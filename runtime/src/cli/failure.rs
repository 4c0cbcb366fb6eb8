//! What an error means: its text, what to do about it, and the exit code.

use std::io;
use std::process::ExitCode;

use serde_json::json;

use super::client::ClientError;
use super::output::{Output, StdoutError, Style, harmless};

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
}

/// The command line asks for something that makes no sense.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageError(pub String);

/// The verb has already shown what is wrong.
#[derive(Debug, thiserror::Error)]
#[error("see above")]
pub struct Reported;

/// Problems that are the node's and not the caller's or the function's.
const NODE_FAULTS: [&str; 3] = ["internal", "draining", "busy"];

fn exit(error: &anyhow::Error) -> Exit {
    if error.is::<UsageError>() {
        return Exit::Usage;
    }
    match error.downcast_ref::<ClientError>() {
        Some(ClientError::Url(_) | ClientError::Key) => Exit::Usage,
        Some(
            ClientError::Unreachable { .. }
            | ClientError::Timeout { .. }
            | ClientError::Cut(_)
            | ClientError::Foreign { .. },
        ) => Exit::Unreachable,
        Some(ClientError::Problem(problem)) => match problem.status {
            401 | 403 => Exit::Denied,
            _ if NODE_FAULTS.contains(&problem.kind.as_str()) => Exit::NodeFailed,
            _ => Exit::Failed,
        },
        Some(ClientError::Certificate { .. }) | None => Exit::Failed,
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
        ClientError::Timeout { .. } => Some("give it longer with `--timeout`, or look at `weft logs`"),
        ClientError::Problem(problem) => match (problem.status, problem.kind.as_str()) {
            (401, _) => Some("give a key with `--key`, WEFT_KEY or a profile (`weft profile set`)"),
            (403, _) => Some("this needs another key: tenants are the operator's, functions a tenant's"),
            (404, "function-not-found") => Some("`weft functions` lists what is deployed"),
            (404, "version-not-found") => Some("`weft function versions NAME` lists what is stored"),
            (404, "tenant-not-found") => Some("`weft tenant list` lists the tenants"),
            (_, "busy" | "draining") => Some("try again in a moment"),
            _ => None,
        },
        _ => None,
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
    if !error.is::<Reported>() {
        describe(error, exit, out);
    }
    ExitCode::from(exit as u8)
}

fn describe(error: &anyhow::Error, exit: Exit, out: &Output) {
    let (text, hint) = (harmless(&format!("{error:#}")), hint(error));
    let problem = match error.downcast_ref::<ClientError>() {
        Some(ClientError::Problem(problem)) => Some(problem),
        _ => None,
    };
    if out.is_json() {
        let value = json!({"error": {"detail": text, "hint": hint, "exit_code": exit as u8, "problem": problem}});
        // The text below says it again should this not get through.
        let _ = out.bytes(format!("{value}\n").as_bytes());
    }
    let kind = problem.map(|problem| out.paint_error(Style::Dim, &format!(" ({})", harmless(&problem.kind))));
    out.diagnose(format_args!("{} {text}{}", out.paint_error(Style::Red, "error:"), kind.unwrap_or_default()));
    if let Some(hint) = hint {
        out.diagnose(format_args!("{} {hint}", out.paint_error(Style::Yellow, "hint:")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::types::Problem;

    fn problem(status: u16, kind: &str) -> anyhow::Error {
        let problem = Problem {
            kind: kind.to_owned(),
            title: String::new(),
            status,
            detail: String::new(),
            limit: None,
            function_error: None,
            invocation: None,
        };
        ClientError::Problem(Box::new(problem)).into()
    }

    #[test]
    fn exit_codes_say_whose_fault_it_is() {
        for (error, expected) in [
            (problem(404, "function-not-found"), Exit::Failed),
            (problem(500, "function-trapped"), Exit::Failed),
            (problem(401, "unauthenticated"), Exit::Denied),
            (problem(403, "forbidden"), Exit::Denied),
            (problem(503, "busy"), Exit::NodeFailed),
            (problem(500, "internal"), Exit::NodeFailed),
            (ClientError::Cut("reset".to_owned()).into(), Exit::Unreachable),
            (UsageError("no".to_owned()).into(), Exit::Usage),
            (anyhow::anyhow!("disk full"), Exit::Failed),
        ] {
            assert_eq!(exit(&error), expected, "{error:?}");
        }
    }
}

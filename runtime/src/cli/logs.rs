//! `weft logs` and `weft job logs`: what a function said, and what it says next.

use std::time::Duration;

use clap::Args;

use super::client::{Client, ClientError};
use super::output::{Output, Style, harmless};
use crate::clock::rfc3339;
use crate::logs::{Level, LogLine, Whose};
use crate::names::Name;

/// How long to wait before asking again, at first and at most.
pub const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

#[derive(Args)]
pub struct LogsArgs {
    name: Name,
    #[command(flatten)]
    lines: LinesArgs,
}

/// Which lines.
#[derive(Args)]
pub struct LinesArgs {
    /// Go on with each line as it is written, until Ctrl-C; with `--json`, one value per line
    #[arg(short, long)]
    follow: bool,
    /// At most so many of the lines that are already there
    #[arg(long, default_value_t = 100, value_name = "LINES", conflicts_with = "after")]
    tail: u32,
    /// All lines after the one with this id
    #[arg(long, value_name = "ID")]
    after: Option<u64>,
}

pub fn run(args: LogsArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    show(&Whose::Function(args.name), &args.lines, client, out)
}

pub fn show(whose: &Whose, args: &LinesArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    if args.follow {
        return follow(whose, args, client, out);
    }
    let list = client.logs(whose, Some(args.tail), args.after)?;
    out.show(&list, || list.lines.iter().map(|line| as_text(line, out)).collect())
}

/// Ends only with the process, or when the node says no.
fn follow(whose: &Whose, args: &LinesArgs, client: &Client, out: &Output) -> anyhow::Result<()> {
    let mut last: Option<String> = None;
    let mut events = client.follow_logs(whose, Some(args.tail), args.after, None)?;
    loop {
        for event in events.by_ref() {
            // A silent or broken connection ends like one that was closed: with another one.
            let Ok(event) = event else { break };
            if event.kind == "line" {
                let line: LogLine = serde_json::from_str(&event.data)?;
                out.show(&line, || as_text(&line, out))?;
            }
            last = event.id.or(last);
        }
        events = connect_again(
            BACKOFF,
            |error| out.note(format_args!("{error}; trying again")),
            || {
                let tail = last.is_none().then_some(args.tail);
                client.follow_logs(whose, tail, args.after, last.as_deref())
            },
        )?;
    }
}

/// Tries again for as long as the node is away, or too busy, and says so once.
pub fn connect_again<T>(
    (mut pause, longest): (Duration, Duration),
    say: impl Fn(&ClientError),
    mut connect: impl FnMut() -> Result<T, ClientError>,
) -> Result<T, ClientError> {
    let mut said = false;
    loop {
        std::thread::sleep(pause);
        match connect() {
            Err(ClientError::Problem { problem, path }) if problem.status != 429 && problem.status < 500 => {
                return Err(ClientError::Problem { problem, path });
            }
            Err(error) => {
                if !said {
                    say(&error);
                }
                said = true;
            }
            Ok(connected) => return Ok(connected),
        }
        pause = (pause * 2).min(longest);
    }
}

pub fn as_text(line: &LogLine, out: &Output) -> String {
    let level = match line.level {
        Level::Debug => out.paint(Style::Dim, "DEBUG"),
        Level::Info => out.paint(Style::Green, "INFO "),
        Level::Warn => out.paint(Style::Yellow, "WARN "),
        Level::Error => out.paint(Style::Red, "ERROR"),
    };
    format!("{} {level} {}\n", out.paint(Style::Dim, &rfc3339(line.at_ms)), harmless(&line.message))
}

//! `weft invoke`: bytes in, exactly the function's bytes out.

use std::fmt;
use std::io::{self, Read};
use std::num::NonZeroU32;

use anyhow::Context;
use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::Global;
use super::client::{Client, Invocation, Invoked};
use super::failure::UsageError;
use super::output::{Output, Style, microseconds, short_version};
use crate::digest::hex;
use crate::names::Name;
use crate::units::Span;

#[derive(Args)]
pub struct InvokeArgs {
    name: Name,
    /// The request's body: text, `@FILE`, or `-` for stdin
    #[arg(short, long, value_name = "TEXT|@FILE|-")]
    data: Option<String>,
    /// The body's media type [default: JSON, text or bytes, whichever it is]
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// Seeds the function's randomness, to repeat an invocation
    #[arg(long)]
    seed: Option<u64>,
    /// How long to wait for the answer, such as `30s` [default: as long as the node allows]
    #[arg(long, value_name = "SPAN")]
    timeout: Option<Span>,
    /// Say on stderr which version ran, and for how long
    #[arg(short, long)]
    verbose: bool,
    /// Invoke this often, one after the other, and show how long cold starts and runs took instead of the answer
    #[arg(long, value_name = "TIMES", conflicts_with = "verbose")]
    repeat: Option<NonZeroU32>,
}

pub fn run(args: InvokeArgs, global: &Global, out: &Output) -> anyhow::Result<()> {
    if args.data.as_deref() == Some("-") && global.key.as_deref() == Some("-") {
        return Err(UsageError("the body and the key cannot both come from stdin".to_owned()).into());
    }
    let client = global.client()?;
    let body = args.data.as_deref().map(read).transpose()?.unwrap_or_default();
    let content_type = args.content_type.or_else(|| guess_content_type(&body).map(str::to_owned));
    let timeout = args.timeout.map(|span| span.0);
    let invocation = Invocation { body, content_type, seed: args.seed, timeout };
    if let Some(times) = args.repeat {
        return repeat(times, &args.name, &invocation, &client, out);
    }
    let invoked = client.invoke(&args.name, &invocation)?;
    if args.verbose {
        out.diagnose(out.paint_error(Style::Dim, &facts(&invoked)));
    }
    if out.is_json() {
        return out.show(&as_json(&invoked), String::new);
    }
    Ok(out.bytes(&invoked.body)?)
}

fn repeat(
    times: NonZeroU32,
    name: &Name,
    invocation: &Invocation,
    client: &Client,
    out: &Output,
) -> anyhow::Result<()> {
    let (mut cold_starts, mut runs) = (Vec::new(), Vec::new());
    for _ in 0..times.get() {
        let invoked = client.invoke(name, invocation)?;
        cold_starts.extend(invoked.cold_start_us);
        runs.extend(invoked.run_us);
    }
    let (cold_start, run) = (Percentiles::of(cold_starts), Percentiles::of(runs));
    let summary = json!({ "invocations": times, "cold_start_us": cold_start, "run_us": run });
    out.show(&summary, || format!("{times} invocations\ncold start  {cold_start}\nwhole run   {run}\n"))
}

/// How a lot of times are spread, in microseconds.
#[derive(Serialize)]
struct Percentiles {
    p50: u64,
    p99: u64,
    max: u64,
}

impl Percentiles {
    fn of(mut times: Vec<u64>) -> Self {
        times.sort_unstable();
        let at = |percent: usize| times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)));
        let [p50, p99, max] = [50, 99, 100].map(|percent| at(percent).copied().unwrap_or(0));
        Self { p50, p99, max }
    }
}

impl fmt::Display for Percentiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [self.p50, self.p99, self.max].map(microseconds);
        write!(f, "p50 {p50}, p99 {p99}, at most {max}")
    }
}

fn read(data: &str) -> anyhow::Result<Vec<u8>> {
    match (data, data.strip_prefix('@')) {
        ("-", _) => {
            let mut body = Vec::new();
            io::stdin().read_to_end(&mut body).context("cannot read stdin")?;
            Ok(body)
        }
        (_, Some(path)) => std::fs::read(path).with_context(|| format!("cannot read `{path}`")),
        (text, None) => Ok(text.into()),
    }
}

/// The narrowest media type that fits the body; none if there is no body.
fn guess_content_type(body: &[u8]) -> Option<&'static str> {
    match std::str::from_utf8(body) {
        Ok("") => None,
        Ok(text) if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => Some("application/json"),
        Ok(_) => Some("text/plain; charset=utf-8"),
        Err(_) => Some("application/octet-stream"),
    }
}

fn facts(invoked: &Invoked) -> String {
    let time = |us: Option<u64>| us.map_or_else(|| "?".to_owned(), microseconds);
    format!(
        "invocation {}, version {}, seed {}, cold start {}, run {}",
        invoked.invocation.as_deref().unwrap_or("?"),
        invoked.version.as_deref().map_or("?", short_version),
        invoked.seed.map_or_else(|| "?".to_owned(), |seed| seed.to_string()),
        time(invoked.cold_start_us),
        time(invoked.run_us),
    )
}

/// A body that is not text goes under another name, so that nobody takes its digits for the answer.
fn as_json(invoked: &Invoked) -> serde_json::Value {
    let mut value = json!({
        "status": invoked.status,
        "content_type": invoked.content_type,
        "invocation": invoked.invocation,
        "version": invoked.version,
        "seed": invoked.seed,
        "cold_start_us": invoked.cold_start_us,
        "run_us": invoked.run_us,
    });
    match std::str::from_utf8(&invoked.body) {
        Ok(text) => value["body"] = json!(text),
        Err(_) => {
            value["body_hex"] = json!(hex(&invoked.body));
        }
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_fits_the_body() {
        for (body, expected) in [
            (&b""[..], None),
            (b"{\"a\": [1, 2]}", Some("application/json")),
            (b"12.5", Some("application/json")),
            (b"{not json", Some("text/plain; charset=utf-8")),
            ("grüß".as_bytes(), Some("text/plain; charset=utf-8")),
            (b"\xff\x00", Some("application/octet-stream")),
        ] {
            assert_eq!(guess_content_type(body), expected, "{body:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_written_as_digits() {
        let invoked = Invoked {
            status: 200,
            content_type: None,
            body: vec![0xff, 0x01],
            invocation: None,
            version: None,
            seed: None,
            cold_start_us: None,
            run_us: None,
        };
        let value = as_json(&invoked);
        assert_eq!((value.get("body"), value["body_hex"].as_str()), (None, Some("ff01")));
    }
}

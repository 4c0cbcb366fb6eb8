//! A task that uses each word of `weft:train` 0.1.0: every function of `job`, every case of `error`.
//!
//! A build of it is kept in `tests/stored/task-0.1.0.wasm`, where later hosts have to run it as it was. So this may be
//! changed, but the stored build may not: a later contract gets a file of its own.
//!
//! The body is the name of what to try:
//! - `facts` answers `name=value` lines: `id`, `function-name`, `function-version`, `seed`, `random-u64`,
//!   `random-bytes` (16 of them, in hexadecimal), `time-left` (nanoseconds) and `should-stop`;
//! - `log` writes one line at each level, answers 4;
//! - `random:N` answers N random bytes, or fails as the host did;
//! - `error:KIND` fails with that case;
//! - `panic` panics;
//! - anything else is answered as it came, with its media type.

use weft_sdk::{Context, Error, Request, Response, Result, job};

#[weft_sdk::function]
fn contract(request: Request) -> Result<Response> {
    let text = std::str::from_utf8(&request.body).unwrap_or_default();
    match text.split_once(':').unwrap_or((text, "")) {
        ("facts", "") => Ok(Response::text(facts()?)),
        ("log", "") => Ok(Response::text(log())),
        ("random", length) => Ok(Response::bytes(job::random_bytes(length.parse().bad_input("the length")?)?)),
        ("error", kind) => Err(error(kind)),
        ("panic", "") => panic!("told to panic"),
        _ => Ok(Response::new(request.content_type, request.body)),
    }
}

fn facts() -> Result<String> {
    let bytes = job::random_bytes(16)?.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let facts = [
        ("id", job::id()),
        ("function-name", job::function_name()),
        ("function-version", job::function_version()),
        ("seed", job::seed().to_string()),
        ("random-u64", job::random_u64().to_string()),
        ("random-bytes", bytes),
        ("time-left", job::time_left().as_nanos().to_string()),
        ("should-stop", job::should_stop().to_string()),
    ];
    Ok(facts.iter().map(|(name, value)| format!("{name}={value}\n")).collect())
}

fn log() -> &'static str {
    weft_sdk::debug!("a line at debug");
    weft_sdk::info!("a line at info");
    weft_sdk::warn!("a line at warn");
    weft_sdk::error!("a line at error");
    "4"
}

fn error(kind: &str) -> Error {
    let message = format!("told to fail with `{kind}`");
    match kind {
        "bad-input" => Error::BadInput(message),
        "bad-shape" => Error::BadShape(message),
        "quota" => Error::Quota(message),
        "out-of-device-memory" => Error::OutOfDeviceMemory(message),
        "cancelled" => Error::Cancelled,
        "device-lost" => Error::DeviceLost(message),
        "not-found" => Error::NotFound(message),
        "conflict" => Error::Conflict(message),
        _ => Error::Other(message),
    }
}

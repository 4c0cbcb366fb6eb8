//! A function that misbehaves as the request's body tells it to, for tests of what the host does about it.
//!
//! | body            | what it does                                                                        |
//! |-----------------|-------------------------------------------------------------------------------------|
//! | `loop`          | never returns and calls nothing                                                     |
//! | `alloc`         | takes and touches memory until it is refused, then aborts                           |
//! | `alloc:N`       | takes and touches N bytes, answers N                                                |
//! | `recurse`       | calls itself for ever                                                               |
//! | `trap`          | executes `unreachable`                                                              |
//! | `panic`         | panics with a message                                                               |
//! | `flood`         | logs lines of 1 KiB for ever                                                        |
//! | `flood:N`       | logs N such lines, answers N                                                        |
//! | `huge:N`        | answers N bytes                                                                     |
//! | `random:N`      | asks for N random bytes at once, answers how many came, or the error that did       |
//! | `sleep-busy:MS` | keeps asking for the time that is left until MS milliseconds of it are gone         |
//! | `spin:N`        | does N rounds of arithmetic, answers a number that depends on each                  |
//! | `state`         | counts up in a static, answers the count: 1 unless an instance was used twice       |
//! | `error:KIND`    | fails with that case of the contract's `error`                                      |
//! | `complain:N`    | fails with a text of N bytes                                                        |
//! | `type:N`        | answers with a content type of N bytes                                              |
//! | `stop`          | works until it is told to stop, then fails with `cancelled`                         |
//! | `seed`          | answers the seed and four random numbers, one per line                              |
//! | `facts`         | answers invocation id, function name, version, seed and whether to stop, line by line |

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use weft_sdk::{Context, Error, Request, Response, Result, job};

static CALLS: AtomicU64 = AtomicU64::new(0);

#[weft_sdk::function]
fn hostile(request: Request) -> Result<Response> {
    let (behaviour, argument) = request.text()?.split_once(':').unwrap_or((request.text()?, ""));
    let number = || argument.parse::<u64>().bad_input(format!("the number of `{behaviour}:N`"));
    match behaviour {
        "loop" => loop {
            black_box(());
        },
        "alloc" if argument.is_empty() => take_all_memory(),
        "alloc" => answer(touch(number()?)),
        "recurse" => answer(recurse(0, black_box(u64::MAX))),
        "trap" => trap(),
        "panic" => panic!("told to panic"),
        "flood" if argument.is_empty() => flood(u64::MAX),
        "flood" => flood(number()?),
        "huge" => Ok(Response::bytes(vec![b'x'; number()? as usize])),
        "random" => random(number()?),
        "sleep-busy" => sleep_busy(Duration::from_millis(number()?)),
        "spin" => answer(spin(number()?)),
        "state" => answer(CALLS.fetch_add(1, Ordering::Relaxed) + 1),
        "error" => Err(error(argument)),
        "complain" => Err(Error::bad_input("x".repeat(number()? as usize))),
        "type" => Ok(Response::new("x".repeat(number()? as usize), "typed")),
        "stop" => until_stopped(),
        "seed" => seed(),
        "facts" => facts(),
        _ => Err(Error::bad_input(format!("no behaviour `{behaviour}`"))),
    }
}

fn answer(value: impl ToString) -> Result<Response> {
    Ok(Response::text(value.to_string()))
}

fn take_all_memory() -> ! {
    loop {
        let mut memory = Vec::<u8>::new();
        if memory.try_reserve_exact(1 << 20).is_err() {
            std::process::abort();
        }
        memory.resize(1 << 20, 1);
        black_box(&memory);
        std::mem::forget(memory);
    }
}

fn touch(bytes: u64) -> u64 {
    let memory = black_box(vec![1_u8; bytes as usize]);
    memory.len() as u64
}

/// Works on what the call returns, in a way no optimizer can turn into a loop. All of it stays in locals: what is to
/// overflow is the stack of the machine, which the host guards, not the one that Rust keeps in linear memory.
fn recurse(depth: u64, deepest: u64) -> u64 {
    if depth == deepest {
        return depth;
    }
    (recurse(depth + 1, deepest) ^ depth).wrapping_mul(31)
}

fn trap() -> ! {
    #[cfg(target_arch = "wasm32")]
    core::arch::wasm32::unreachable();
    #[cfg(not(target_arch = "wasm32"))]
    std::process::abort();
}

fn flood(lines: u64) -> Result<Response> {
    let line = "flood ".repeat(171);
    for _ in 0..lines {
        job::log(job::Level::Info, &line);
    }
    answer(lines)
}

fn random(length: u64) -> Result<Response> {
    match job::random_bytes(length as u32) {
        Ok(bytes) => answer(bytes.len()),
        Err(error) => answer(error),
    }
}

fn sleep_busy(time: Duration) -> Result<Response> {
    let start = job::time_left();
    while start.saturating_sub(job::time_left()) < time {}
    answer(time.as_millis())
}

fn spin(rounds: u64) -> u64 {
    let mut state = 1_u64;
    for round in 0..rounds {
        state = black_box(state).wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
    }
    state
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

fn until_stopped() -> Result<Response> {
    while !job::should_stop() {
        black_box(spin(1000));
    }
    Err(Error::Cancelled)
}

fn seed() -> Result<Response> {
    let mut lines = format!("{}\n", job::seed());
    for _ in 0..4 {
        lines += &format!("{}\n", job::random_u64());
    }
    answer(lines)
}

fn facts() -> Result<Response> {
    let (id, name, version) = (job::id(), job::function_name(), job::function_version());
    answer(format!("{id}\n{name}\n{version}\n{}\n{}\n", job::seed(), job::should_stop()))
}

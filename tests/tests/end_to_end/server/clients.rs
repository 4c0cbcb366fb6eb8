//! Clients that are slow, broken or too many.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::wire::Wire;
use weft_tests::{components, guests};

const SOON: Duration = Duration::from_secs(8);
const INVOKE: &str = "/v1/functions/echo/invoke";

fn with_echo(options: Options) -> Result<(Node, Client)> {
    let node = options.start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("echo", &components::echo()?)?;
    Ok((node, tenant))
}

/// Whoever comes after a bad client is served as ever.
fn goes_on(tenant: &Client) -> Result<()> {
    ensure!(tenant.must_invoke("echo", "next")? == "next");
    Ok(())
}

#[test]
fn a_head_that_comes_byte_by_byte_is_cut_off() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("header-timeout", "1s"))?;
    let mut wire = Wire::connect(&tenant)?;
    let start = Instant::now();
    wire.send("GET /livez HTTP/1.1\r\n")?;
    wire.drip(&[b'x'; 100], Duration::from_millis(100))?;
    wire.until_closed(SOON)?;
    ensure!(start.elapsed() < Duration::from_secs(5), "it took {:?}", start.elapsed());
    goes_on(&tenant)
}

#[test]
fn a_body_that_comes_byte_by_byte_is_cut_off() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("body-timeout", "1s"))?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["content-length: 100"])?;
    wire.send("\r\n")?;
    wire.drip(&[b'x'; 99], Duration::from_millis(100))?;
    let answer = wire.answer()?;
    ensure!(answer.status == 408, "{answer:?}");
    ensure!(answer.problem_kind()? == ("request-timeout".into(), Some("body_timeout".into())), "{answer:?}");
    wire.until_closed(SOON)?;
    goes_on(&tenant)
}

#[test]
fn an_upload_that_comes_byte_by_byte_is_cut_off() -> Result<()> {
    let (node, tenant) = with_echo(Options::default().set("body-timeout", "1s"))?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("PUT", "/v1/functions/slow", &["content-length: 100"])?;
    wire.send("\r\n")?;
    wire.drip(&[b'x'; 99], Duration::from_millis(100))?;
    ensure!(wire.answer()?.problem_kind()?.0 == "request-timeout");
    ensure!(std::fs::read_dir(node.data_dir().join("staging"))?.count() == 0);
    Ok(())
}

#[test]
fn a_body_that_is_still_coming_holds_no_instance() -> Result<()> {
    let (node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["content-length: 100"])?;
    wire.send(format!("\r\n{}", "x".repeat(50)))?;
    let memory = || Ok(tenant.get("/v1/usage")?.json()?["now"]["memory"] == 50);
    eventually(SOON, memory).context("half of the body is not counted")?;
    ensure!(node.operator()?.get("/v1/node")?.json()?["instances"] == 0);
    wire.send("x".repeat(50))?;
    ensure!(wire.answer()?.body.len() == 100);
    Ok(())
}

#[test]
fn a_body_that_breaks_off_leaves_nothing_behind() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["content-length: 100"])?;
    wire.send(format!("\r\n{}", "x".repeat(50)))?;
    let memory = |bytes: u64| Ok(tenant.get("/v1/usage")?.json()?["now"]["memory"] == bytes);
    eventually(SOON, || memory(50))?;
    drop(wire);
    eventually(SOON, || memory(0)).context("the body is still counted")
}

#[test]
fn an_idle_connection_is_closed() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("header-timeout", "1s"))?;
    let mut wire = Wire::connect(&tenant)?;
    wire.request("GET", "/livez", &[], b"")?;
    ensure!(wire.answer()?.status == 200);
    wire.until_closed(SOON)?;
    Ok(())
}

#[test]
fn a_connection_that_never_says_anything_is_closed() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("header-timeout", "1s"))?;
    Wire::connect(&tenant)?.until_closed(SOON)?;
    Ok(())
}

#[test]
fn an_answer_that_nobody_reads_is_dropped_with_its_memory() -> Result<()> {
    let options = Options::default().set("write-timeout", "1s").set("max-payload", "64MiB");
    let node = options.start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    let mut wire = Wire::connect(&tenant)?;
    // More than the sockets' buffers take in.
    wire.request("POST", "/v1/functions/hostile/invoke", &[], b"huge:48000000")?;
    let memory = || -> Result<u64> { tenant.get("/v1/usage")?.json()?["now"]["memory"].as_u64().context("no memory") };
    let instances = || -> Result<bool> { Ok(node.operator()?.get("/v1/node")?.json()?["instances"] == 0) };
    eventually(SOON, || Ok(memory()? >= 48_000_000 && instances()?)).context("the answer is not held")?;
    eventually(SOON, || Ok(memory()? == 0)).context("the answer is still held")
}

#[test]
fn a_reader_that_is_slow_but_reads_gets_all_of_it() -> Result<()> {
    let node = Options::default().set("write-timeout", "1s").start()?;
    let tenant = node.tenant("one", json!({}))?;
    tenant.must_deploy("hostile", &components::hostile()?)?;
    let mut wire = Wire::connect(&tenant)?;
    wire.request("POST", "/v1/functions/hostile/invoke", &[], b"huge:16000000")?;
    ensure!(wire.answer()?.body.len() == 16_000_000);
    Ok(())
}

/// Bytes of an answer that no buffers on its way take in.
const LARGE: usize = 16_000_000;

/// A tenant's connection on which a large answer is being sent: the function is done, and nobody reads.
fn unread(node: &Node, tenant: &Client) -> Result<Wire> {
    tenant.must_deploy("hostile", &components::hostile()?)?;
    let ask = || -> Result<Wire> {
        let mut wire = Wire::connect(tenant)?;
        wire.request("POST", "/v1/functions/hostile/invoke", &[], format!("huge:{LARGE}").as_bytes())?;
        Ok(wire)
    };
    let mut wire = ask()?;
    let mut is_unread = || -> Result<bool> {
        // What is answered while nothing is held is a refusal: a deployment may count for a moment after its answer has
        // come, and a tenant may have as many connections as that.
        let is_answered = !wire.is_silent_for(Duration::from_millis(1))?;
        if is_held(node)? {
            return Ok(node.view()?.instances == 0);
        }
        if is_answered {
            wire = ask()?;
        }
        Ok(false)
    };
    eventually(SOON, &mut is_unread).context("the answer is not held")?;
    Ok(wire)
}

fn is_held(node: &Node) -> Result<bool> {
    Ok(node.view()?.memory >= LARGE as u64)
}

#[test]
fn a_connection_whose_answer_is_still_being_sent_is_not_closed_for_others() -> Result<()> {
    let node = Options::default().set("max-connections", "8").start()?;
    let tenant = node.tenant("one", json!({}))?;
    let mut slow = unread(&node, &tenant)?;
    // Others come and go until some connection has been closed to make room: it must not be the oldest, which is in use.
    let mut idle = (0..8).map(|_| Wire::connect(&tenant)).collect::<Result<Vec<_>>>()?;
    let mut one_is_closed = || -> Result<bool> {
        idle.push(Wire::connect(&tenant)?);
        let closed = |wire: &mut Wire| wire.is_silent_for(Duration::from_millis(20)).map(|silent| !silent);
        idle.iter_mut().try_fold(false, |any, wire| Ok(any | closed(wire)?))
    };
    eventually(SOON, &mut one_is_closed)?;
    ensure!(slow.answer()?.body.len() == LARGE);
    Ok(())
}

#[test]
fn whoever_reads_slowly_is_counted_until_all_is_sent() -> Result<()> {
    let node = Options::default().set("max-connections-per-tenant", "1").start()?;
    let tenant = node.tenant("one", json!({}))?;
    let mut slow = unread(&node, &tenant)?;
    let answer = tenant.get("/v1/functions")?;
    ensure!(answer.status == 429, "{answer:?}");
    ensure!(answer.problem_kind()? == ("rate-limited".into(), Some("max_connections_per_tenant".into())), "{answer:?}");
    ensure!(slow.answer()?.body.len() == LARGE);
    eventually(SOON, || Ok(tenant.get("/v1/functions")?.status == 200))
}

#[test]
fn a_client_that_has_closed_its_half_gets_all_of_a_large_answer() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({}))?;
    let mut slow = unread(&node, &tenant)?;
    slow.half_close()?;
    // Longer than an answer may take to begin: this one goes on whenever the client reads.
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(2) {
        ensure!(is_held(&node)?, "the answer was given up after {:?}", start.elapsed());
    }
    ensure!(slow.answer()?.body.len() == LARGE);
    // And it is closed at once.
    let start = Instant::now();
    ensure!(slow.until_closed(SOON)?.is_empty());
    ensure!(start.elapsed() < Duration::from_millis(900), "it took {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_body_over_the_limit_is_refused_by_name() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("max-body", "1KiB"))?;
    ensure!(tenant.invoke("echo", &[b'x'; 1024])?.body.len() == 1024);
    let answer = tenant.invoke("echo", &[b'x'; 1025])?;
    ensure!(answer.status == 413, "{answer:?}");
    ensure!(answer.problem_kind()? == ("too-large".into(), Some("max_body".into())), "{answer:?}");
    Ok(())
}

#[test]
fn a_body_of_unknown_length_is_held_to_the_limit_too() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("max-body", "1KiB"))?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["transfer-encoding: chunked"])?;
    wire.send(format!("\r\n800\r\n{}\r\n0\r\n\r\n", "x".repeat(0x800)))?;
    ensure!(wire.answer()?.problem_kind()? == ("too-large".into(), Some("max_body".into())));
    Ok(())
}

/// A size says nothing about what comes: HTTP hands on the bytes of a chunk as they arrive, and those are what is bounded.
#[test]
fn a_chunk_that_claims_to_be_endless_is_held_to_what_comes_of_it() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("max-body", "1KiB").set("body-timeout", "1s"))?;
    let begin = |said: &str| -> Result<Answer> {
        let mut wire = Wire::connect(&tenant)?;
        wire.head("POST", INVOKE, &["transfer-encoding: chunked"])?;
        wire.send(format!("\r\nFFFFFFFFFFFFFFFF\r\n{said}"))?;
        wire.answer()
    };
    let start = Instant::now();
    let nothing = begin("")?;
    ensure!(nothing.problem_kind()? == ("request-timeout".into(), Some("body_timeout".into())), "{nothing:?}");
    ensure!(start.elapsed() < SOON / 2, "it took {:?}", start.elapsed());
    let much = begin(&"x".repeat(2_000))?;
    ensure!(much.problem_kind()? == ("too-large".into(), Some("max_body".into())), "{much:?}");
    Ok(())
}

#[test]
fn an_upload_over_the_quota_is_refused_by_name() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", json!({ "upload_bytes": 1000 }))?;
    let answer = tenant.deploy("echo", &components::echo()?)?;
    ensure!(answer.status == 413, "{answer:?}");
    ensure!(answer.problem_kind()? == ("too-large".into(), Some("upload_bytes".into())), "{answer:?}");
    Ok(())
}

#[test]
fn json_that_goes_on_and_on_is_refused() -> Result<()> {
    let node = Options::default().start()?;
    let answer =
        node.operator()?.send("POST", "/v1/tenants", &[("content-type", "application/json")], &[b' '; 65 << 10])?;
    ensure!(answer.status == 413 && answer.problem_kind()?.0 == "too-large", "{answer:?}");
    Ok(())
}

/// What a node says to a head that is too much, before it closes.
fn refused_head(lines: impl Iterator<Item = String>) -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    let head: String = lines.map(|line| line + "\r\n").collect();
    wire.send(format!("GET /livez HTTP/1.1\r\n{head}\r\n"))?;
    let said = wire.until_closed(SOON)?;
    ensure!(said.starts_with(b"HTTP/1.1 4"), "{}", String::from_utf8_lossy(&said));
    goes_on(&tenant)
}

#[test]
fn too_many_headers_are_refused() -> Result<()> {
    refused_head((0..200).map(|number| format!("x-{number}: y")))
}

#[test]
fn a_huge_head_is_refused() -> Result<()> {
    refused_head([format!("x: {}", "y".repeat(512 << 10))].into_iter())
}

#[test]
fn what_is_not_http_is_refused() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    for garbage in [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], b"hello\r\n\r\n", &[0; 1000]] {
        let mut wire = Wire::connect(&tenant)?;
        wire.send(garbage)?;
        let said = wire.until_closed(SOON)?;
        ensure!(said.is_empty() || said.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&said));
    }
    goes_on(&tenant)
}

#[test]
fn two_lengths_that_differ_are_refused() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["content-length: 3", "content-length: 4"])?;
    wire.send("\r\nabcd")?;
    let said = wire.until_closed(SOON)?;
    ensure!(said.starts_with(b"HTTP/1.1 400"), "{}", String::from_utf8_lossy(&said));
    Ok(())
}

#[test]
fn one_connection_serves_many_requests() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    for number in 0..50 {
        let body = number.to_string();
        wire.request("POST", INVOKE, &[], body.as_bytes())?;
        ensure!(wire.answer()?.text() == body);
    }
    Ok(())
}

#[test]
fn requests_that_are_sent_at_once_are_answered_in_order() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    for body in ["one", "two", "three"] {
        wire.request("POST", INVOKE, &[], body.as_bytes())?;
    }
    for body in ["one", "two", "three"] {
        ensure!(wire.answer()?.text() == body);
    }
    Ok(())
}

#[test]
fn a_refused_request_does_not_end_its_connection() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.request("GET", "/v1/functions/absent", &[], b"")?;
    ensure!(wire.answer()?.status == 404);
    wire.request("GET", "/livez", &[], b"")?;
    ensure!(wire.answer()?.status == 200);
    Ok(())
}

#[test]
fn a_connection_is_closed_on_request() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.request("GET", "/livez", &["connection: close"], b"")?;
    ensure!(wire.answer()?.header("connection") == Some("close"));
    ensure!(wire.until_closed(SOON)?.is_empty());
    Ok(())
}

/// A connection on which a request is being answered: its body does not come.
fn held(tenant: &Client) -> Result<Wire> {
    let mut wire = Wire::connect(tenant)?;
    wire.head("POST", INVOKE, &["content-length: 100"])?;
    wire.send("\r\n")?;
    Ok(wire)
}

#[test]
fn connections_beyond_the_limit_wait_for_their_turn() -> Result<()> {
    let options = Options::default().set("max-connections", "3").set("max-connections-per-tenant", "3");
    let (_node, tenant) = with_echo(options)?;
    let held = (0..3).map(|_| held(&tenant)).collect::<Result<Vec<_>>>()?;
    let ask = |_| -> Result<Wire> {
        let mut wire = Wire::connect(&tenant)?;
        wire.request("GET", "/livez", &["connection: close"], b"")?;
        Ok(wire)
    };
    let mut waiting = (0..10).map(ask).collect::<Result<Vec<_>>>()?;
    ensure!(waiting[0].is_silent_for(Duration::from_millis(300))?, "a fourth connection was served");
    drop(held);
    for mut wire in waiting {
        ensure!(wire.answer()?.status == 200);
    }
    goes_on(&tenant)
}

#[test]
fn connections_that_nobody_uses_make_room() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default().set("max-connections", "20"))?;
    let mut idle = (0..20).map(|_| Wire::connect(&tenant)).collect::<Result<Vec<_>>>()?;
    // One of them has even asked something, which needs no key.
    idle[0].request("GET", "/livez", &[], b"")?;
    let start = Instant::now();
    for _ in 0..5 {
        let mut wire = Wire::connect(&tenant)?;
        wire.request("POST", INVOKE, &[], b"next")?;
        ensure!(wire.answer()?.text() == "next");
    }
    ensure!(start.elapsed() < SOON, "the idle ones kept others out for {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_tenant_holds_only_its_share_of_the_connections() -> Result<()> {
    let (node, tenant) = with_echo(Options::default().set("max-connections", "20"))?;
    let other = node.tenant("two", json!({}))?;
    other.must_deploy("echo", &components::echo()?)?;
    tenant.must_deploy("sleep", &guests::wat("wasi-sleep")?)?;
    let sleep = || -> Result<Wire> {
        let mut wire = Wire::connect(&tenant)?;
        wire.request("POST", &INVOKE.replace("echo", "sleep"), &[], b"")?;
        Ok(wire)
    };
    let mut waiting = (0..10).map(|_| sleep()).collect::<Result<Vec<_>>>()?;
    let refused = || -> Result<bool> {
        let mut wire = Wire::connect(&tenant)?;
        wire.request("GET", "/v1/usage", &[], b"")?;
        let answer = wire.answer()?;
        if answer.status == 200 {
            return Ok(false);
        }
        ensure!(answer.status == 429, "{answer:?}");
        ensure!(answer.problem_kind()? == ("rate-limited".into(), Some("max_connections_per_tenant".into())));
        ensure!(answer.header("retry-after").is_some(), "{answer:?}");
        Ok(true)
    };
    eventually(SOON, || {
        // A deployment may count for a moment after its answer has come, so that one of them was refused.
        for wire in &mut waiting {
            if !wire.is_silent_for(Duration::from_millis(1))? {
                *wire = sleep()?;
            }
        }
        refused()
    })?;
    // As many connections as it likes to open: they are refused one by one, and others come in.
    let _more = (0..40).map(|_| Wire::connect(&tenant)).collect::<Result<Vec<_>>>()?;
    let start = Instant::now();
    for _ in 0..5 {
        ensure!(other.must_invoke("echo", "mine")? == "mine");
    }
    ensure!(start.elapsed() < SOON, "others were kept out for {:?}", start.elapsed());
    drop(waiting);
    eventually(SOON, || Ok(!refused()?))
}

#[test]
fn a_client_that_has_closed_its_half_is_answered() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    for (method, path, body) in [("GET", "/livez", ""), ("POST", INVOKE, "hello")] {
        let mut wire = Wire::connect(&tenant)?;
        wire.request(method, path, &[], body.as_bytes())?;
        wire.half_close()?;
        let said = wire.until_closed(SOON)?;
        ensure!(said.starts_with(b"HTTP/1.1 200"), "{path}: {}", String::from_utf8_lossy(&said));
        ensure!(body.is_empty() || said.ends_with(body.as_bytes()), "{}", String::from_utf8_lossy(&said));
    }
    goes_on(&tenant)
}

#[test]
fn a_request_for_two_hosts_or_none_is_refused() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    for head in ["", "host: a\r\nhost: b\r\n", "host: a\r\nhost: a\r\n"] {
        let mut wire = Wire::connect(&tenant)?;
        wire.send(format!("GET /livez HTTP/1.1\r\n{head}\r\n"))?;
        let answer = wire.answer()?;
        ensure!(answer.status == 400 && answer.problem()?.detail.contains("Host"), "{answer:?}");
    }
    // HTTP/1.0 has no hosts.
    let mut wire = Wire::connect(&tenant)?;
    wire.send("GET /livez HTTP/1.0\r\n\r\n")?;
    ensure!(wire.answer()?.status == 200);
    Ok(())
}

#[test]
fn an_expectation_that_cannot_be_met_is_refused() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.request("POST", INVOKE, &["expect: 200-ok"], b"x")?;
    let answer = wire.answer()?;
    ensure!(answer.status == 417 && answer.problem_kind()?.0 == "expectation-failed", "{answer:?}");
    Ok(())
}

#[test]
fn a_transfer_coding_that_nobody_here_knows_is_refused() -> Result<()> {
    let (_node, tenant) = with_echo(Options::default())?;
    let mut wire = Wire::connect(&tenant)?;
    wire.head("POST", INVOKE, &["transfer-encoding: gzip, chunked"])?;
    wire.send("\r\n1\r\nx\r\n0\r\n\r\n")?;
    let answer = wire.answer()?;
    ensure!(answer.status == 501 && answer.problem_kind()?.0 == "unknown-coding", "{answer:?}");
    goes_on(&tenant)
}

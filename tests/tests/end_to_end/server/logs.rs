//! Logs as a stream of events.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use weft::cli::{Client, Event};
use weft::logs::Whose;
use weft_tests::components;
use weft_tests::node::{Node, Options};

/// A node with a function that has logged four lines, and a client that can follow.
fn logged() -> Result<(Node, Client)> {
    let node = Options::default().dev().start()?;
    node.anybody().must_deploy("it", &components::stored()?)?;
    node.anybody().must_invoke("it", "log")?;
    let client = Client::new(node.url(), None, None)?;
    Ok((node, client))
}

fn follow(client: &Client, last: Option<&str>) -> Result<impl Iterator<Item = std::io::Result<Event>> + use<>> {
    Ok(client.follow_logs(&Whose::Function("it".parse()?), None, None, last)?)
}

fn ids(events: &[Event]) -> Result<Vec<u64>> {
    events.iter().map(|event| Ok(event.id.as_deref().context("no id")?.parse()?)).collect()
}

#[test]
fn every_line_is_an_event_whose_id_is_higher_than_the_last() -> Result<()> {
    let (_node, client) = logged()?;
    let events: Vec<Event> = follow(&client, None)?.take(4).collect::<Result<_, _>>()?;
    let ids = ids(&events)?;
    ensure!(ids.is_sorted_by(|one, next| one < next), "{ids:?}");
    ensure!(events.iter().all(|event| event.kind == "line"), "{events:?}");
    Ok(())
}

#[test]
fn a_follower_sees_a_line_that_is_written_later() -> Result<()> {
    let (node, client) = logged()?;
    let mut events = follow(&client, None)?;
    let before: Vec<Event> = events.by_ref().take(4).collect::<Result<_, _>>()?;
    node.anybody().must_invoke("it", "log")?;
    let after: Vec<Event> = events.take(4).collect::<Result<_, _>>()?;
    ensure!(ids(&before)?.last() < ids(&after)?.first());
    Ok(())
}

#[test]
fn a_follower_that_comes_back_misses_nothing_and_sees_nothing_twice() -> Result<()> {
    let (node, client) = logged()?;
    let mut seen: Vec<Event> = follow(&client, None)?.take(2).collect::<Result<_, _>>()?;
    node.anybody().must_invoke("it", "log")?;
    let last = seen.last().and_then(|event| event.id.clone());
    seen.extend(follow(&client, last.as_deref())?.take(6).collect::<Result<Vec<_>, _>>()?);
    let list = node.anybody().get("/v1/functions/it/logs")?.json()?;
    let lines = list["lines"].as_array().context("no lines")?;
    let all: Vec<u64> = lines.iter().filter_map(|line| line["id"].as_u64()).collect();
    ensure!(ids(&seen)? == all, "{seen:?} of {list}");
    Ok(())
}

#[test]
fn a_follower_that_comes_back_after_a_restart_goes_on() -> Result<()> {
    let (node, client) = logged()?;
    let seen: Vec<Event> = follow(&client, None)?.take(3).collect::<Result<_, _>>()?;
    let node = Options::default().dev().start_in(node.stop()?)?;
    node.anybody().must_invoke("it", "log")?;
    let client = Client::new(node.url(), None, None)?;
    let last = seen.last().and_then(|event| event.id.clone());
    let rest: Vec<Event> = follow(&client, last.as_deref())?.take(5).collect::<Result<_, _>>()?;
    let text = |event: &Event| -> Result<String> {
        let line: serde_json::Value = serde_json::from_str(&event.data)?;
        Ok(line["message"].as_str().unwrap_or_default().to_owned())
    };
    let rest: Vec<String> = rest.iter().map(text).collect::<Result<_>>()?;
    let levels = ["error", "debug", "info", "warn", "error"].map(|level| format!("a line at {level}"));
    ensure!(rest == levels, "{rest:?}");
    Ok(())
}

#[test]
fn a_line_of_another_function_is_not_followed() -> Result<()> {
    let (node, client) = logged()?;
    node.anybody().must_deploy("other", &components::stored()?)?;
    let mut events = follow(&client, None)?.skip(4);
    node.anybody().must_invoke("other", "log")?;
    node.anybody().must_invoke("it", "log")?;
    let event = events.next().context("no more events")??;
    let line: serde_json::Value = serde_json::from_str(&event.data)?;
    ensure!(line["function"] == "it", "{line}");
    Ok(())
}

#[test]
fn followers_are_let_go_when_the_node_stops() -> Result<()> {
    let (mut node, client) = logged()?;
    let mut events = follow(&client, None)?.skip(3);
    events.next().context("no line")??;
    let ended = thread::spawn(move || events.next().is_none());
    let start = Instant::now();
    node.terminate()?;
    ensure!(ended.join().map_err(|_| anyhow!("the follower panicked"))?, "there was another event");
    ensure!(node.wait(Duration::from_secs(10))?.code() == Some(0));
    ensure!(start.elapsed() < Duration::from_secs(4), "it took {:?}", start.elapsed());
    Ok(())
}

#[test]
fn a_last_event_that_is_no_id_is_refused() -> Result<()> {
    let (node, _) = logged()?;
    let headers = [("accept", "text/event-stream"), ("last-event-id", "yesterday")];
    let answer = node.anybody().send("GET", "/v1/functions/it/logs", &headers, b"")?;
    ensure!(answer.status == 400 && answer.problem()?.detail.contains("Last-Event-ID"), "{answer:?}");
    Ok(())
}

#[test]
fn a_stream_gives_out_nothing_more_once_its_key_is_another() -> Result<()> {
    let node = Options::default().start()?;
    let tenant = node.tenant("one", serde_json::json!({}))?;
    tenant.must_deploy("it", &components::stored()?)?;
    tenant.must_invoke("it", "log")?;
    let mut events = follow(&Client::new(node.url(), tenant.key(), None)?, None)?;
    let before: Vec<Event> = events.by_ref().take(4).collect::<Result<_, _>>()?;
    ensure!(before.len() == 4, "{before:?}");
    let rotated = node.operator()?.post("/v1/tenants/one/rotate-key", &serde_json::json!({}))?.json()?;
    tenant.with_key(rotated["key"].as_str()).must_invoke("it", "log")?;
    let next = events.next();
    ensure!(next.is_none(), "{next:?}");
    Ok(())
}

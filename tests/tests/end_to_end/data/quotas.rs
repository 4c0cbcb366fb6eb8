//! A tenant's storage that is used up in the middle of things.

use anyhow::{Result, ensure};
use serde_json::json;
use weft::digest::Digest;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options};

use super::*;

const MIB: usize = 1 << 20;

fn tenant(stored_bytes: usize) -> Result<(Node, Client)> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "stored_bytes": stored_bytes }))?;
    Ok((node, client))
}

fn is_full(answer: &Answer) -> Result<()> {
    let kind = answer.problem_kind()?;
    ensure!(kind == ("quota-exceeded".to_owned(), Some("stored_bytes".to_owned())), "{answer:?}");
    ensure!(answer.problem()?.detail.contains("`stored_bytes`"), "{answer:?}");
    Ok(())
}

#[test]
fn a_file_that_cannot_fit_is_refused_before_it_is_sent() -> Result<()> {
    let (_node, client) = tenant(MIB)?;
    is_full(&begin(&client, &Digest::of(b"large").to_string(), MIB + 1)?)?;
    ensure!(stored(&client)? == 0);
    Ok(())
}

#[test]
fn a_part_that_does_not_fit_is_given_back_and_so_is_the_rest_on_request() -> Result<()> {
    let (node, client) = tenant(12 * MIB)?;
    // Either fits, but not both.
    let (one, two) = (noise(1, 10 * MIB), noise(2, 10 * MIB));
    upload(&client, &one)?;
    let digest = Digest::of(&two).to_string();
    // What is there already counts at the first look.
    is_full(&begin(&client, &digest, two.len())?)?;
    ensure!(delete(&client, &format!("/v1/uploads/{}", Digest::of(&one)))? == 204);
    for content in [&one, &two] {
        begin(&client, &Digest::of(content).to_string(), content.len())?.json()?;
    }
    send_part(&client, &Digest::of(&one).to_string(), 0, &one[..PART])?.json()?;
    send_part(&client, &Digest::of(&one).to_string(), 1, &one[PART..])?.json()?;
    is_full(&send_part(&client, &digest, 0, &two[..PART])?)?;
    ensure!(stored(&client)? == one.len() as u64);
    disk_holds_what_is_charged(&node, &client)?;
    send_part(&client, &digest, 1, &two[PART..])?.json()?;
    // A part that is there takes no room, however little there is.
    ensure!(missing(&send_part(&client, &digest, 1, &two[PART..])?.json()?)? == [0]);
    ensure!(stored(&client)? == 12 * MIB as u64);
    disk_holds_what_is_charged(&node, &client)?;
    for content in [&one, &two] {
        ensure!(delete(&client, &format!("/v1/uploads/{}", Digest::of(content)))? == 204);
    }
    ensure!(stored(&client)? == 0);
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_data_set_that_does_not_fit_is_not_there_and_its_bytes_are_given_back() -> Result<()> {
    let (node, client) = tenant(10 * MIB)?;
    let file = noisy_npy(1, 6_000, 1_000);
    let digest = upload(&client, &file)?;
    // Two blocks fit beside the file, the third does not.
    let before = files(&node, "blobs")?;
    is_full(&create(&client, "it", &of_file(&digest, "it.npy"))?)?;
    ensure!(client.get("/v1/datasets/it")?.status == 404);
    ensure!(stored(&client)? == file.len() as u64 && files(&node, "blobs")? == before);
    disk_holds_what_is_charged(&node, &client)?;
    let more = serde_json::to_vec(&json!({ "stored_bytes": 20 * MIB }))?;
    node.operator()?.send("PATCH", "/v1/tenants/one/quota", &[], &more)?.json()?;
    create(&client, "it", &of_file(&digest, "it.npy"))?.json()?;
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_version_that_does_not_fit_leaves_the_one_before() -> Result<()> {
    let (node, client) = tenant(5 * MIB)?;
    create(&client, "it", &synthetic(10_000, 1))?.json()?;
    let before = show(&client, "it")?;
    is_full(&append(&client, "it", &synthetic(100_000, 2))?)?;
    ensure!(show(&client, "it")? == before);
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn data_sets_and_models_are_counted() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({ "datasets": 1, "models": 0 }))?;
    create(&client, "one", &synthetic(5, 1))?.json()?;
    let answer = create(&client, "two", &synthetic(5, 2))?;
    ensure!(answer.problem_kind()? == ("quota-exceeded".to_owned(), Some("datasets".to_owned())), "{answer:?}");
    let wish = serde_json::to_vec(&json!({ "upload": Digest::of(b"model").to_string() }))?;
    let answer = client.send("PUT", "/v1/models/one", &[], &wish)?;
    ensure!(answer.problem_kind()? == ("quota-exceeded".to_owned(), Some("models".to_owned())), "{answer:?}");
    disk_holds_what_is_charged(&node, &client)
}

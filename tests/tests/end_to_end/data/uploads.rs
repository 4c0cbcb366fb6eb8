//! Files that arrive in parts.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::catalog::MAX_UPLOADS;
use weft::digest::Digest;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};
use weft_tests::wire::Wire;

use super::*;

#[test]
fn parts_may_come_in_any_order_and_twice() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let file = noisy_npy(1, 17_000, 1_000);
    let digest = Digest::of(&file).to_string();
    let parts: Vec<&[u8]> = file.chunks(PART).collect();
    let begun = begin(&client, &digest, file.len())?.json()?;
    ensure!(begun["parts"] == 3 && begun["part_bytes"] == PART && missing(&begun)? == [0, 1, 2], "{begun}");
    for (index, left) in [(2, vec![0, 1]), (0, vec![1]), (0, vec![1]), (2, vec![1]), (1, vec![])] {
        let answer = send_part(&client, &digest, index, parts[index])?.json()?;
        ensure!(missing(&answer)? == left, "after part {index}: {answer}");
    }
    ensure!(stored(&client)? == file.len() as u64);
    create(&client, "noise", &of_file(&digest, "noise.npy"))?.json()?;
    ensure!(show(&client, "noise")?["train"]["count"] == 17_000);
    // It has become the data set.
    ensure!(client.get(&format!("/v1/uploads/{digest}"))?.status == 404);
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_part_that_cannot_be_right_is_refused_and_costs_nothing() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let file = noise(2, 1_000);
    let digest = Digest::of(&file).to_string();
    begin(&client, &digest, file.len())?.json()?;
    let path = format!("/v1/uploads/{digest}/parts");
    let other = Digest::of(b"other").to_string();
    let refused = |path: &str, headers: &[(&str, &str)], body: &[u8], says: &str| -> Result<()> {
        let answer = client.send("PUT", path, headers, body)?;
        let problem = answer.problem()?;
        ensure!(answer.status == 400 && problem.detail.contains(says), "{answer:?}");
        Ok(())
    };
    refused(&format!("{path}/0"), &[], &file[..999], "999 bytes where 1000 belong")?;
    refused(&format!("{path}/0"), &[], &[], "0 bytes where 1000 belong")?;
    refused(&format!("{path}/1"), &[], &file, "part 1 of an upload that has 1")?;
    refused(&format!("{path}/first"), &[], &file, "the path is not what this route takes")?;
    refused(&format!("{path}/0"), &[("weft-digest", &other)], &file, "damaged on its way")?;
    refused(&format!("{path}/0"), &[("weft-digest", "soup")], &file, "not a digest")?;
    let answer = client.send("PUT", &format!("{path}/0"), &[], &vec![0; PART + 1])?;
    ensure!(answer.problem_kind()? == ("too-large".to_owned(), Some("part_bytes".to_owned())), "{answer:?}");
    disk_holds_what_is_charged(&node, &client)?;
    ensure!(stored(&client)? == 0);
    // The right digest, and then it is there.
    let answer = client.send("PUT", &format!("{path}/0"), &[("weft-digest", &digest)], &file)?;
    ensure!(missing(&answer.json()?)?.is_empty());
    Ok(())
}

#[test]
fn a_file_that_is_not_what_was_announced_is_discarded() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let claimed = Digest::of(b"something else").to_string();
    let file = noisy_npy(3, 100, 10);
    for path in ["/v1/datasets/lie", "/v1/models/lie"] {
        begin(&client, &claimed, file.len())?.json()?;
        send_part(&client, &claimed, 0, &file)?.json()?;
        let wish = match path {
            "/v1/models/lie" => json!({ "upload": claimed }),
            _ => of_file(&claimed, "lie.npy"),
        };
        let answer = client.send("PUT", path, &[], &serde_json::to_vec(&wish)?)?;
        let problem = answer.problem()?;
        let found = Digest::of(&file).to_string();
        ensure!(answer.status == 422 && problem.detail.contains(&found), "{answer:?}");
        ensure!(client.get(&format!("/v1/uploads/{claimed}"))?.status == 404);
        ensure!(client.get(path)?.status == 404);
        ensure!(stored(&client)? == 0);
        disk_holds_what_is_charged(&node, &client)?;
    }
    Ok(())
}

#[test]
fn an_upload_that_is_begun_again_goes_on_and_is_not_usable_before_its_end() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let file = noisy_npy(4, 9_000, 1_000);
    let digest = Digest::of(&file).to_string();
    begin(&client, &digest, file.len())?.json()?;
    send_part(&client, &digest, 1, &file[PART..])?.json()?;
    let answer = create(&client, "early", &of_file(&digest, "early.npy"))?;
    ensure!(answer.status == 409 && answer.problem()?.detail.contains("lacks 1 of 2 parts"), "{answer:?}");
    let again = begin(&client, &digest, file.len())?.json()?;
    ensure!(missing(&again)? == [0], "{again}");
    let other_size = begin(&client, &digest, file.len() + 1)?;
    ensure!(other_size.status == 400 && other_size.problem()?.detail.contains("the same file"), "{other_size:?}");
    upload(&client, &file)?;
    create(&client, "early", &of_file(&digest, "early.npy"))?.json()?;
    Ok(())
}

#[test]
fn a_part_can_be_replaced_by_the_right_one() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let (file, wrong) = (noisy_npy(5, 10, 10), noisy_npy(6, 10, 10));
    let digest = Digest::of(&file).to_string();
    begin(&client, &digest, file.len())?.json()?;
    for bytes in [&wrong, &file] {
        send_part(&client, &digest, 0, bytes)?.json()?;
        disk_holds_what_is_charged(&node, &client)?;
    }
    create(&client, "right", &of_file(&digest, "right.npy"))?.json()?;
    Ok(())
}

#[test]
fn uploads_are_counted() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let digest = |index: usize| Digest::of(&index.to_le_bytes()).to_string();
    for index in 0..MAX_UPLOADS {
        begin(&client, &digest(index), 100)?.json()?;
    }
    let answer = begin(&client, &digest(MAX_UPLOADS), 100)?;
    ensure!(answer.problem_kind()? == ("quota-exceeded".to_owned(), Some("uploads".to_owned())), "{answer:?}");
    // One that is there may be begun again, and one that is given up makes room.
    begin(&client, &digest(0), 100)?.json()?;
    ensure!(delete(&client, &format!("/v1/uploads/{}", digest(0)))? == 204);
    begin(&client, &digest(MAX_UPLOADS), 100)?.json()?;
    Ok(())
}

#[test]
fn sizes_that_no_file_has_are_refused() -> Result<()> {
    let node = Options::default().dev().start()?;
    for size in [json!(0), json!(u64::MAX), json!(-1), json!("1"), json!(null)] {
        let wish = json!({ "digest": Digest::of(b"file").to_string(), "size": size });
        let answer = node.anybody().post("/v1/uploads", &wish)?;
        ensure!(answer.problem()?.status == 400, "{size}: {answer:?}");
    }
    Ok(())
}

/// Asks, and goes away without waiting for the answer.
fn ask_and_leave(client: &Client, method: &str, path: &str, body: &[u8]) -> Result<()> {
    Wire::connect(client)?.request(method, path, &["content-type: application/json"], body)
}

fn uploads_as_seen(client: &Client, digests: &[String]) -> Result<Vec<(u16, String)>> {
    let seen = |digest: &String| {
        client
            .get(&format!("/v1/uploads/{digest}"))
            .map(|Answer { status, body, .. }| (status, String::from_utf8_lossy(&body).into_owned()))
    };
    digests.iter().map(seen).collect()
}

/// Uploads and what is charged for them, once nothing is under way any more. What those who went away had asked for may
/// still wait for its turn, and then nothing tells of it: so others take turns after them, on connections that are
/// accepted after theirs, until a number of such turns has changed nothing and what is charged is what is on disk.
fn settled(node: &Node, client: &Client, digests: &[String]) -> Result<(Vec<(u16, String)>, u64)> {
    const TURNS: u64 = 10;
    let look = || Ok::<_, anyhow::Error>((uploads_as_seen(client, digests)?, stored(client)?));
    let (mut seen, mut turns, mut seed) = (look()?, 0, 0);
    eventually(Duration::from_secs(120), || {
        seed += 1;
        let (later, file) = (Client::new(node.url(), client.key()), noise(10_000 + seed, 500));
        let digest = upload(&later, &file)?;
        ensure!(delete(&later, &format!("/v1/uploads/{digest}"))? == 204, "`{digest}` cannot be deleted");
        let now = look()?;
        turns = if now == seen && disk_holds_what_is_charged(node, client).is_ok() { turns + 1 } else { 0 };
        seen = now;
        Ok(turns == TURNS)
    })
    .with_context(|| format!("{:?}", disk_holds_what_is_charged(node, client)))?;
    Ok(seen)
}

#[test]
fn clients_that_go_away_leave_on_disk_what_is_shown() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    let contents: Vec<Vec<u8>> = (0..40).map(|seed| noise(100 + seed, 500)).collect();
    let digests: Vec<String> = contents.iter().map(|bytes| Digest::of(bytes).to_string()).collect();
    for (index, (bytes, digest)) in contents.iter().zip(&digests).enumerate() {
        let wish = serde_json::to_vec(&json!({ "digest": digest, "size": bytes.len() }))?;
        match index % 4 {
            0 => ask_and_leave(&client, "POST", "/v1/uploads", &wish)?,
            kind => {
                begin(&client, digest, bytes.len())?.json()?;
                if kind == 1 {
                    send_part(&client, digest, 0, bytes)?.json()?;
                    ask_and_leave(&client, "DELETE", &format!("/v1/uploads/{digest}"), b"")?;
                } else {
                    ask_and_leave(&client, "PUT", &format!("/v1/uploads/{digest}/parts/0"), bytes)?;
                }
            }
        }
    }
    let (before, charged) = settled(&node, &client, &digests)?;
    let node = node.kill_and_restart()?;
    let client = Client::new(node.url(), client.key());
    let after = uploads_as_seen(&client, &digests)?;
    for ((digest, before), after) in digests.iter().zip(&before).zip(&after) {
        ensure!(before == after, "`{digest}`: {before:?} became {after:?}");
    }
    ensure!(stored(&client)? == charged);
    disk_holds_what_is_charged(&node, &client)
}

//! The same thing asked for twice at once.

use std::thread;
use std::time::Duration;

use anyhow::{Result, anyhow, ensure};
use weft_tests::http::Answer;
use weft_tests::node::{Options, eventually};

use super::*;

const ROUNDS: u64 = 6;

/// Runs two requests at once.
fn both<T: Send + 'static>(
    one: impl FnOnce() -> Result<T> + Send + 'static,
    two: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<[T; 2]> {
    let one = thread::spawn(one);
    let two = two();
    Ok([one.join().map_err(|_| anyhow!("a client panicked"))??, two?])
}

fn statuses(answers: &[Answer; 2]) -> [u16; 2] {
    let mut statuses = [answers[0].status, answers[1].status];
    statuses.sort_unstable();
    statuses
}

#[test]
fn of_two_data_sets_of_one_name_one_is_made() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for round in 0..ROUNDS {
        let spec = |seed: u64| -> Result<_> {
            Ok(of_file(&upload(&client, &noisy_npy(2 * round + seed, 400, 1_000))?, "x.npy"))
        };
        let (one, two) = (spec(1)?, spec(2)?);
        let (first, second) = (client.clone(), client.clone());
        let answers = both(move || create(&first, "it", &one), move || create(&second, "it", &two))?;
        ensure!(statuses(&answers) == [201, 409], "{answers:?}");
        disk_holds_what_is_charged(&node, &client)?;
        ensure!(delete(&client, "/v1/datasets/it")? == 204);
        // The loser's file is still there.
        ensure!(stored(&client)? == noisy_npy(1, 400, 1_000).len() as u64);
        let left = [1, 2].map(|seed| weft::digest::Digest::of(&noisy_npy(2 * round + seed, 400, 1_000)));
        let deleted: Vec<u16> =
            left.iter().map(|upload| delete(&client, &format!("/v1/uploads/{upload}"))).collect::<Result<_>>()?;
        ensure!(deleted.contains(&204) && deleted.contains(&404), "{deleted:?}");
        ensure!(stored(&client)? == 0);
        disk_holds_what_is_charged(&node, &client)?;
    }
    Ok(())
}

#[test]
fn of_two_uses_of_one_upload_at_least_one_succeeds_and_neither_is_half() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for round in 0..ROUNDS {
        let spec = of_file(&upload(&client, &noisy_npy(round, 400, 1_000))?, "x.npy");
        let (first, second, other) = (client.clone(), client.clone(), spec.clone());
        let answers = both(move || create(&first, "one", &spec), move || create(&second, "two", &other))?;
        ensure!(answers.iter().any(|answer| answer.status == 201), "{answers:?}");
        for (answer, name) in answers.iter().zip(["one", "two"]) {
            // The other has used it up before this one looked, or while it did.
            ensure!([201, 404, 409].contains(&answer.status), "{answer:?}");
            let shown = client.get(&format!("/v1/datasets/{name}"))?;
            ensure!((shown.status == 200) == (answer.status == 201), "{answer:?} {shown:?}");
            if shown.status == 200 {
                ensure!(delete(&client, &format!("/v1/datasets/{name}"))? == 204);
            }
        }
        ensure!(stored(&client)? == 0);
        disk_holds_what_is_charged(&node, &client)?;
    }
    Ok(())
}

#[test]
fn samples_that_are_added_at_once_are_all_there_or_refused() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    create(&client, "it", &synthetic(10, 0))?.json()?;
    let mut expected = 10;
    for round in 0..ROUNDS {
        let (first, second) = (client.clone(), client.clone());
        let answers = both(
            move || append(&first, "it", &synthetic(100, 2 * round + 1)),
            move || append(&second, "it", &synthetic(100, 2 * round + 2)),
        )?;
        for answer in &answers {
            ensure!([200, 409].contains(&answer.status), "{answer:?}");
            expected += if answer.status == 200 { 100 } else { 0 };
        }
        ensure!(answers.iter().any(|answer| answer.status == 200), "{answers:?}");
        let shown = show(&client, "it")?;
        ensure!(shown["train"]["count"] == expected, "{expected}: {shown}");
        disk_holds_what_is_charged(&node, &client)?;
    }
    Ok(())
}

#[test]
fn a_data_set_that_is_deleted_while_it_grows_is_gone() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for round in 0..ROUNDS {
        create(&client, "it", &synthetic(2_000, 2 * round))?.json()?;
        let (first, second) = (client.clone(), client.clone());
        let [answer, deleted] = both(
            move || append(&first, "it", &synthetic(2_000, 2 * round + 1)),
            move || second.send("DELETE", "/v1/datasets/it", &[], b""),
        )?;
        ensure!([200, 404, 409].contains(&answer.status) && deleted.status == 204, "{answer:?} {deleted:?}");
        ensure!(client.get("/v1/datasets/it")?.status == 404);
        ensure!(stored(&client)? == 0);
        disk_holds_what_is_charged(&node, &client)?;
    }
    Ok(())
}

#[test]
fn a_data_set_that_is_deleted_while_it_is_looked_at_is_there_or_not() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for round in 0..ROUNDS {
        create(&client, "it", &synthetic(1_000, round))?.json()?;
        let (first, second) = (client.clone(), client.clone());
        let looks = move || -> Result<Vec<Answer>> {
            let mut answers = Vec::new();
            while answers.last().is_none_or(|answer: &Answer| answer.status == 200) {
                answers.push(first.get("/v1/datasets/it")?);
            }
            Ok(answers)
        };
        let [answers, _] =
            both(looks, move || second.send("DELETE", "/v1/datasets/it", &[], b"").map(|answer| vec![answer]))?;
        ensure!(answers.last().is_some_and(|answer| answer.status == 404), "{answers:?}");
    }
    Ok(())
}

#[test]
fn a_data_set_whose_tenant_is_deleted_while_it_is_made_leaves_nothing() -> Result<()> {
    let node = Options::default().start()?;
    for round in 0..ROUNDS {
        let tenant = node.tenant("one", serde_json::json!({}))?;
        let operator = node.operator()?;
        let [answer, deleted] = both(
            move || create(&tenant, "it", &synthetic(3_000, round)),
            move || operator.send("DELETE", "/v1/tenants/one", &[], b""),
        )?;
        ensure!([201, 401, 409].contains(&answer.status) && deleted.status == 204, "{answer:?} {deleted:?}");
        // The request ends with its tenant; what was being made notices a moment later.
        let left = || Ok((files(&node, "blobs")?, files(&node, "staging")?));
        let emptied = eventually(Duration::from_secs(30), || left().map(|left| left.0.is_empty() && left.1.is_empty()));
        emptied.map_err(|error| anyhow!("{error}: {:?}", left()))?;
    }
    Ok(())
}

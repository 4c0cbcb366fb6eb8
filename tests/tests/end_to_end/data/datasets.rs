//! What data sets are made of, and what is told of them.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use weft_tests::node::Options;

use super::*;

const TABLE: &[u8] = b"height,width,colour\n1,10,red\n2,20,blue\n3,30,red\n6,40,red\n";
const MORE: &[u8] = b"height,width,colour\n8,50,blue\n";

fn floats(values: impl IntoIterator<Item = f32>) -> Vec<u8> {
    values.into_iter().flat_map(f32::to_le_bytes).collect()
}

#[test]
fn a_table_becomes_a_data_set_that_says_what_it_is() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let (train, test) = (upload(&client, TABLE)?, upload(&client, MORE)?);
    let spec = json!({
        "train": [{ "features": { "upload": train, "name": "train.csv" } }],
        "test": [{ "features": { "upload": test, "name": "test.csv" } }],
        "transform": "standardise",
    });
    let answer = create(&client, "colours", &spec)?;
    ensure!(answer.status == 201, "{answer:?}");
    let shown = show(&client, "colours")?;
    let expected = json!({
        "kind": "dense", "element": "f32", "shape": [2], "labels": "class", "classes": 2,
        "class_names": ["blue", "red"], "transform": "standardise",
    });
    for (key, value) in expected.as_object().into_iter().flatten() {
        ensure!(shown[key] == *value, "`{key}`: {shown:#}");
    }
    ensure!(shown["train"]["count"] == 4 && shown["train"]["classes"] == json!([1, 3]), "{shown:#}");
    ensure!(shown["test"]["count"] == 1 && shown["test"]["classes"] == json!([1, 0]), "{shown:#}");
    let statistics = &shown["statistics"];
    ensure!(statistics["groups"] == 2 && statistics["mean"] == json!([3.0, 25.0]), "{statistics}");
    ensure!(statistics["low"] == json!([1.0, 10.0]) && statistics["high"] == json!([6.0, 40.0]), "{statistics}");
    let preview = shown["preview"].as_str().unwrap_or_default();
    ensure!(preview.contains("red") && preview.contains("10"), "{preview}");
    ensure!(shown["dataset"] == answer.json()? && shown["shown"] == shown["dataset"]["version"], "{shown:#}");
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn arrays_and_their_labels_become_a_data_set() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let features = npy("<f4", &[6, 2, 2], &floats((0..24).map(|value| value as f32)));
    let labels = npy("|u1", &[6], &[0, 1, 2, 0, 1, 2]);
    let (features, labels) = (upload(&client, &features)?, upload(&client, &labels)?);
    let spec = json!({ "train": [{
        "features": { "upload": features, "name": "x.npy" }, "labels": { "upload": labels, "name": "y.npy" },
    }]});
    create(&client, "cubes", &spec)?.json()?;
    let shown = show(&client, "cubes")?;
    ensure!(shown["shape"] == json!([2, 2]) && shown["train"]["count"] == 6 && shown["classes"] == 3, "{shown:#}");
    Ok(())
}

#[test]
fn synthetic_samples_are_labelled_as_such() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for (kind, width) in [("binary20", 20), ("higgs", 28), ("rcv1", 47_236)] {
        let spec = json!({ "synthetic": { "kind": kind, "train": 30, "test": 7, "seed": 3 } });
        create(&client, kind, &spec)?.json()?;
        let shown = show(&client, kind)?;
        ensure!(shown["train"]["count"] == 30 && shown["test"]["count"] == 7, "{shown:#}");
        ensure!(shown["shape"] == json!([width]), "{shown:#}");
        ensure!(shown["synthetic"].as_str().is_some_and(|rule| rule.contains(kind)), "{shown:#}");
    }
    Ok(())
}

#[test]
fn digits_come_with_weft() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    create(&client, "digits", &json!({ "shipped": "digits" }))?.json()?;
    let shown = show(&client, "digits")?;
    let count = |part: &str| shown[part]["count"].as_u64().unwrap_or(0);
    ensure!(count("train") + count("test") == 1_797 && count("test") > 0 && shown["classes"] == 10, "{shown:#}");
    ensure!(shown["synthetic"] == Value::Null && shown["shape"] == json!([1, 8, 8]), "{shown:#}");
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_list_comes_in_pages() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for seed in [3, 1, 2] {
        create(&client, &format!("set-{seed}"), &synthetic(5, seed))?.json()?;
    }
    let page = client.get("/v1/datasets?limit=2")?.json()?;
    let names = |page: &Value| -> Vec<Value> {
        page["datasets"].as_array().into_iter().flatten().map(|dataset| dataset["name"].clone()).collect()
    };
    ensure!(names(&page) == ["set-1", "set-2"] && page["next"] == "set-2", "{page}");
    let page = client.get("/v1/datasets?limit=2&after=set-2")?.json()?;
    ensure!(names(&page) == ["set-3"] && page["next"] == Value::Null, "{page}");
    Ok(())
}

#[test]
fn a_version_shares_the_blocks_of_the_one_before_and_leaves_it_as_it_was() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let first = upload(&client, &noisy_npy(1, 3_000, 1_000))?;
    create(&client, "it", &of_file(&first, "first.npy"))?.json()?;
    let (old, old_files) = (show(&client, "it")?, files(&node, "blobs")?);
    let second = upload(&client, &noisy_npy(2, 500, 1_000))?;
    let answer = append(&client, "it", &of_file(&second, "second.npy"))?.json()?;
    ensure!(answer["train"] == 3_500 && answer["versions"] == 2, "{answer}");
    let (new, new_files) = (show(&client, "it")?, files(&node, "blobs")?);
    // All of the old is there, and the new is the new samples and a manifest.
    ensure!(old_files.iter().all(|file| new_files.get(file.0) == Some(file.1)), "{old_files:?} {new_files:?}");
    let bytes = |shown: &Value| shown["dataset"]["stored_bytes"].as_u64().unwrap_or(0);
    let manifest = bytes(&old) - old["train"]["bytes"].as_u64().unwrap_or(0);
    let grown = bytes(&new) - bytes(&old);
    ensure!((500_000..500_000 + 2 * manifest + 1_000).contains(&grown), "{grown} for 500,000 and {manifest}");
    disk_holds_what_is_charged(&node, &client)?;
    // The old version is what it was, but for the list of versions.
    let version = old["shown"].as_str().unwrap_or_default();
    for which in [version, &version["sha256:".len()..][..12]] {
        let mut again = client.get(&format!("/v1/datasets/it?version={which}"))?.json()?;
        for changed in ["dataset", "versions"] {
            ensure!(again[changed] == new[changed]);
            again[changed] = old[changed].clone();
        }
        ensure!(again == old, "{old:#} became {again:#}");
    }
    for unknown in ["", "0000000000", "soup"] {
        ensure!(client.get(&format!("/v1/datasets/it?version={unknown}"))?.status == 404, "`{unknown}`");
    }
    ensure!(delete(&client, "/v1/datasets/it")? == 204);
    ensure!(stored(&client)? == 0 && files(&node, "blobs")?.is_empty(), "{:?}", files(&node, "blobs")?);
    ensure!(client.get("/v1/datasets/it")?.status == 404 && delete(&client, "/v1/datasets/it")? == 404);
    Ok(())
}

#[test]
fn deleting_one_of_two_that_share_blocks_leaves_the_other_whole() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    for name in ["one", "two"] {
        create(&client, name, &synthetic(100, 7))?.json()?;
    }
    let each = show(&client, "one")?["dataset"]["stored_bytes"].as_u64().unwrap_or(0);
    ensure!(stored(&client)? == 2 * each && files(&node, "blobs")?.values().sum::<u64>() == each);
    ensure!(delete(&client, "/v1/datasets/one")? == 204);
    let two = show(&client, "two")?;
    ensure!(two["preview"].as_str().is_some_and(|preview| !preview.is_empty()), "{two}");
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_broken_file_is_named_with_its_line_and_leaves_nothing() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    // Broken late: blocks have been stored by then.
    let mut table: String =
        (0..40_000).map(|row| format!("{row},{},0.5,0.25,0.125,0.5,0.25,0.5,1\n", row + 1)).collect();
    table += "1,2,3,soup,5,6,7,8,0\n";
    let digest = upload(&client, table.as_bytes())?;
    let (before, charged) = (files(&node, "blobs")?, stored(&client)?);
    let answer = create(&client, "soup", &of_file(&digest, "soup.csv"))?;
    let problem = answer.problem()?;
    let says = ["soup.csv", "40001"].iter().all(|part| problem.detail.contains(part));
    ensure!(answer.status == 422 && answer.problem_kind()?.0 == "invalid-data" && says, "{answer:?}");
    ensure!(client.get("/v1/datasets/soup")?.status == 404);
    ensure!(stored(&client)? == charged && files(&node, "blobs")? == before);
    disk_holds_what_is_charged(&node, &client)?;
    // The upload is still there, for another try with other options.
    ensure!(missing(&client.get(&format!("/v1/uploads/{digest}"))?.json()?)?.is_empty());
    // The same in the middle of an append: the data set stays what it was.
    create(&client, "good", &synthetic(10, 1))?.json()?;
    let good = show(&client, "good")?;
    ensure!(append(&client, "good", &of_file(&digest, "soup.csv"))?.status == 422);
    ensure!(show(&client, "good")? == good);
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn what_cannot_be_asked_for_is_refused() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let table = upload(&client, TABLE)?;
    let file = of_file(&table, "table.csv");
    let with = |key: &str, value: Value| {
        let mut spec = file.clone();
        spec[key] = value;
        spec
    };
    let absent = of_file(&weft::digest::Digest::of(b"absent").to_string(), "absent.csv");
    let cases = [
        (json!({}), 400, "give one of"),
        (with("shipped", json!("digits")), 400, "give one of"),
        (json!({ "shipped": "soup" }), 400, "digits"),
        (json!({ "synthetic": { "kind": "soup", "train": 1 } }), 400, "binary20"),
        (json!({ "synthetic": { "kind": "higgs", "train": u64::MAX, "test": 1 } }), 400, "too many"),
        (json!({ "synthetic": { "kind": "higgs", "train": 0 } }), 422, "no samples"),
        (of_file("soup", "soup.csv"), 400, "not a digest"),
        (absent, 404, "upload"),
        (with("format", json!("soup")), 400, "soup"),
        (with("label", json!("weight")), 422, "weight"),
        (with("label_kind", json!("soup")), 400, "soup"),
        (with("transform", json!("soup")), 400, "soup"),
        (with("split", json!(7)), 422, "`7`"),
        (with("shape", json!([3])), 422, "shape"),
        (with("soup", json!(1)), 400, "soup"),
    ];
    for (spec, status, says) in cases {
        let answer = create(&client, "it", &spec)?;
        ensure!(answer.status == status && answer.problem()?.detail.contains(says), "{spec}: {answer:?}");
    }
    for name in ["Not%20A%20Name", "NotAName"] {
        ensure!(create(&client, name, &file)?.status == 400, "{name}");
    }
    ensure!(stored(&client)? == TABLE.len() as u64);
    disk_holds_what_is_charged(&node, &client)
}

//! Models: what comes out is what went in.

use std::collections::BTreeMap;
use std::io;

use anyhow::{Result, anyhow, ensure};
use serde_json::{Value, json};
use weft::dataset::read::{self, Source};
use weft::digest::Digest;
use weft::model::{Dtype, Meta, TensorInfo, write};
use weft_tests::command::User;
use weft_tests::http::{Answer, Client};
use weft_tests::node::Options;

use super::*;

/// A model of two tensors with all that can be said of it.
pub(super) fn model(step: u64) -> Result<Vec<u8>> {
    let tensor =
        |name: &str, shape: &[usize]| TensorInfo { name: name.to_owned(), dtype: Dtype::F32, shape: shape.to_vec() };
    let tensors = [tensor("weight", &[3, 2]), tensor("bias", &[3])];
    let floats = |values: &[f32]| Ok(values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
    let numbers = [floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), floats(&[0.5, 0.25, 0.125])];
    let meta = Meta {
        function: Some(Digest::of(b"function")),
        step: Some(step),
        metrics: BTreeMap::from([("accuracy".to_owned(), 0.5)]),
        ..Meta::default()
    };
    let mut bytes = Vec::new();
    write(&tensors, numbers.into_iter().map(|bytes: io::Result<Vec<u8>>| bytes), &meta, &mut bytes)?;
    Ok(bytes)
}

pub(super) fn keep(client: &Client, name: &str, upload: &str) -> Result<Answer> {
    client.send("PUT", &format!("/v1/models/{name}"), &[], &serde_json::to_vec(&json!({ "upload": upload }))?)
}

#[test]
fn a_model_is_kept_shown_fetched_and_deleted() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let file = model(7)?;
    let digest = upload(&client, &file)?;
    let answer = keep(&client, "it", &digest)?;
    ensure!(answer.status == 201, "{answer:?}");
    let expected = json!({ "name": "it", "digest": digest, "size": file.len(), "tensors": 2, "parameters": 9 });
    let kept = answer.json()?;
    for (key, value) in expected.as_object().into_iter().flatten() {
        ensure!(kept[key] == *value, "`{key}`: {kept}");
    }
    ensure!(client.get("/v1/models")?.json()?["models"] == json!([kept]));
    let shown = client.get("/v1/models/it")?.json()?;
    ensure!(shown["model"] == kept && shown["metadata"]["weft.step"] == "7", "{shown:#}");
    let tensors = json!([
        { "name": "weight", "dtype": "f32", "shape": [3, 2] }, { "name": "bias", "dtype": "f32", "shape": [3] },
    ]);
    ensure!(shown["tensors"] == tensors, "{shown:#}");
    ensure!(client.get("/v1/models/it/file")?.body == file);
    ensure!(client.get("/v1/models/it/file?format=safetensors")?.body == file);
    ensure!(client.get("/v1/models/it/file?format=soup")?.problem()?.status == 400);
    // The upload has become the model: one file, charged once.
    ensure!(stored(&client)? == file.len() as u64);
    disk_holds_what_is_charged(&node, &client)?;
    ensure!(keep(&client, "it", &digest)?.status == 409);
    ensure!(delete(&client, "/v1/models/it")? == 204 && delete(&client, "/v1/models/it")? == 404);
    ensure!(client.get("/v1/models/it/file")?.status == 404);
    ensure!(stored(&client)? == 0);
    disk_holds_what_is_charged(&node, &client)
}

#[test]
fn a_model_can_be_fetched_as_npz() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    keep(&client, "it", &upload(&client, &model(1)?)?)?.json()?;
    let npz = client.get("/v1/models/it/file?format=npz")?.body;
    ensure!(npz.starts_with(b"PK\x03\x04"));
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("it.npz");
    fs::write(&path, &npz)?;
    // Read as rows with a label each.
    let mut options = read::Options::default();
    options.arrays.features = Some("weight".to_owned());
    options.arrays.labels = Some("bias".to_owned());
    let samples = read::open(&Source { name: "it.npz".to_owned(), path }, None, &options)?;
    ensure!(samples.features().width() == 2, "{:?}", samples.features());
    Ok(())
}

/// A model of so many tensors, which hold one number each.
fn many_tensors(count: usize) -> Result<Vec<u8>> {
    let tensor = |number| TensorInfo { name: format!("layer.{number}.weight"), dtype: Dtype::F32, shape: vec![1] };
    let tensors: Vec<TensorInfo> = (0..count).map(tensor).collect();
    let mut file = Vec::new();
    write(&tensors, tensors.iter().map(|_| io::Result::Ok(vec![0_u8; 4])), &Meta::default(), &mut file)?;
    Ok(file)
}

fn tensor_names(detail: &Value) -> Vec<String> {
    let tensors = detail["tensors"].as_array().into_iter().flatten();
    tensors.filter_map(|tensor| tensor["name"].as_str().map(str::to_owned)).collect()
}

#[test]
fn pages_of_a_models_tensors_hold_each_once() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    keep(&client, "deep", &upload(&client, &many_tensors(2_500)?)?)?.json()?;
    let expected: Vec<String> = (0..2_500).map(|number| format!("layer.{number}.weight")).collect();
    for (query, pages) in [("?", 3), ("?limit=2000&", 2), ("?limit=2500&", 1)] {
        let (mut seen, mut path, mut count) = (Vec::new(), format!("/v1/models/deep{query}"), 0);
        loop {
            let page = client.get(&path)?.json()?;
            ensure!(page["model"]["tensors"] == 2_500, "{:#}", page["model"]);
            seen.extend(tensor_names(&page));
            count += 1;
            match page["next"].as_str() {
                Some(next) => path = format!("/v1/models/deep{query}after={next}"),
                None => break,
            }
        }
        ensure!(seen == expected && count == pages, "{query}: {} tensors in {count} pages", seen.len());
    }
    ensure!(client.get("/v1/models/deep?after=nothing")?.problem_kind()?.0 == "invalid-request");
    // The command line shows all of them.
    let shown = User::of(&client)?.json(&["model", "show", "deep"])?;
    ensure!(tensor_names(&shown) == expected);
    Ok(())
}

#[test]
fn a_model_is_looked_at_within_its_tenants_memory() -> Result<()> {
    let node = Options::default().start()?;
    let client = node.tenant("one", json!({}))?;
    keep(&client, "deep", &upload(&client, &many_tensors(20_000)?)?)?.json()?;
    ensure!(client.get("/v1/models/deep")?.status == 200);
    let quota = serde_json::to_vec(&json!({ "memory": 8 << 20 }))?;
    node.operator()?.send("PATCH", "/v1/tenants/one/quota", &[], &quota)?.json()?;
    for path in ["/v1/models/deep", "/v1/models/deep/file?format=npz"] {
        let answer = client.get(path)?;
        ensure!(answer.status == 403, "{path}: {} {:.300}", answer.status, answer.text());
        ensure!(answer.problem_kind()? == ("quota-exceeded".into(), Some("memory".into())), "{path}: {answer:?}");
    }
    // What is refused, and what was answered, is charged no more.
    let soon = std::time::Duration::from_secs(10);
    weft_tests::node::eventually(soon, || Ok(client.usage()?.now.memory == 0))?;
    keep(&client, "small", &upload(&client, &model(1)?)?)?.json()?;
    ensure!(client.get("/v1/models/small")?.status == 200);
    Ok(())
}

/// Each export ends in a moment in which its reader waits already, and must not take that for a broken one.
#[test]
fn no_export_of_many_is_torn() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    keep(&client, "it", &upload(&client, &model(1)?)?)?.json()?;
    let fetch = || client.get("/v1/models/it/file?format=npz");
    let first = fetch()?.body;
    std::thread::scope(|scope| {
        let readers = (0..4).map(|_| {
            scope.spawn(|| -> Result<()> {
                for number in 0..1_000 {
                    let again = fetch().with_context(|| format!("export {number}"))?;
                    ensure!(again.body == first, "export {number} differs: {} bytes", again.body.len());
                }
                Ok(())
            })
        });
        let readers: Vec<_> = readers.collect();
        readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
    })
}

#[test]
fn a_file_that_is_no_model_is_refused_and_stays_an_upload() -> Result<()> {
    let node = Options::default().dev().start()?;
    let client = node.anybody();
    let whole = model(1)?;
    let mut lying = whole.clone();
    lying[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    for broken in [&b"soup"[..], &whole[..whole.len() - 1], &whole[..20], &lying] {
        let digest = upload(&client, broken)?;
        let answer = keep(&client, "broken", &digest)?;
        ensure!(answer.status == 422 && answer.problem_kind()?.0 == "invalid-data", "{answer:?}");
        ensure!(client.get("/v1/models/broken")?.status == 404);
        ensure!(delete(&client, &format!("/v1/uploads/{digest}"))? == 204);
    }
    ensure!(client.get("/v1/models")?.json()?["models"] == Value::Array(Vec::new()));
    ensure!(stored(&client)? == 0);
    disk_holds_what_is_charged(&node, &client)
}

/// Readers that take nothing hold their tenant's places, and nothing else.
#[test]
fn whoever_reads_no_export_holds_up_only_its_own_tenant() -> Result<()> {
    use std::io::Write;
    let node = Options::default().set("queue-timeout", "1s").start()?;
    let (slow, other) = (node.tenant("slow", json!({}))?, node.tenant("other", json!({}))?);
    // More than any buffer on the way holds.
    let numbers = vec![1_u8; 32 << 20];
    let tensors = [TensorInfo { name: "weight".to_owned(), dtype: Dtype::F32, shape: vec![numbers.len() / 4] }];
    let mut file = Vec::new();
    write(&tensors, [io::Result::Ok(numbers)], &Meta::default(), &mut file)?;
    for client in [&slow, &other] {
        keep(client, "large", &upload(client, &file)?)?.json()?;
    }
    let address = node.url().strip_prefix("http://").context("not plain HTTP")?;
    let key = slow.key().context("no key")?;
    let mut connections = Vec::new();
    for _ in 0..8 {
        let mut connection = std::net::TcpStream::connect(address)?;
        let path = "/v1/models/large/file?format=npz";
        write!(connection, "GET {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {key}\r\n\r\n")?;
        connections.push(connection);
    }
    let wait = std::time::Duration::from_secs(60);
    weft_tests::node::eventually(wait, || Ok(slow.get("/v1/models/large/file?format=npz")?.status == 429))?;
    let answer = other.get("/v1/models/large/file?format=npz")?;
    ensure!(answer.status == 200 && answer.body.len() > file.len() / 2, "{}", answer.status);
    ensure!(keep(&slow, "small", &upload(&slow, &model(3)?)?)?.status == 201, "nothing could be written");
    Ok(())
}

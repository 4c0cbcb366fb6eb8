//! Tasks that compute on the node's devices, and what the command line tells of devices.

use std::io::Read;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weft::dataset::digits;
use weft_tests::command::User;
use weft_tests::components;
use weft_tests::http::{Answer, Client};
use weft_tests::node::{Node, Options, eventually};

/// A node that has only this device, and a tenant who has deployed a function.
fn deployed(device: &str, quota: serde_json::Value, crate_folder: &str) -> Result<(Node, Client)> {
    let node = Options::default().set("devices", device).start()?;
    let tenant = node.tenant("one", quota)?;
    tenant.must_deploy("task", &components::component(crate_folder)?)?;
    Ok((node, tenant))
}

/// Matrices of a rule, as the function `matrix-product` takes them, and their products.
fn matrices(batch: usize, rows: usize, inner: usize, columns: usize) -> (Vec<u8>, Vec<f32>) {
    let wave = |phase: f32| move |index: usize| (index as f32 * 0.37 + phase).sin();
    let a: Vec<f32> = (0..batch * rows * inner).map(wave(0.0)).collect();
    let b: Vec<f32> = (0..batch * inner * columns).map(wave(1.0)).collect();
    let element = |index: usize| {
        let (matrix, row, column) = (index / (rows * columns), index / columns % rows, index % columns);
        let products = (0..inner).map(|k| {
            f64::from(a[(matrix * rows + row) * inner + k]) * f64::from(b[(matrix * inner + k) * columns + column])
        });
        products.sum::<f64>() as f32
    };
    let counts = [batch, rows, inner, columns].map(|count| (count as u32).to_le_bytes());
    let elements = a.iter().chain(&b).flat_map(|element| element.to_le_bytes());
    let body = counts.concat().into_iter().chain(elements).collect();
    (body, (0..batch * rows * columns).map(element).collect())
}

fn products_are_right(tenant: &Client) -> Result<()> {
    let (body, expected) = matrices(3, 17, 33, 9);
    let answer = tenant.invoke("task", &body)?;
    ensure!(answer.status == 200, "{answer:?}");
    let found: Vec<f32> = answer.body.as_chunks().0.iter().map(|word| f32::from_le_bytes(*word)).collect();
    ensure!(found.len() == expected.len(), "{} numbers instead of {}", found.len(), expected.len());
    for (found, expected) in found.iter().zip(&expected) {
        ensure!((found - expected).abs() < 1e-4, "{found} instead of {expected}");
    }
    Ok(())
}

fn multiplies_matrices_for_its_tenant(device: &str) -> Result<()> {
    let (_node, tenant) = deployed(device, json!({}), "functions/matrix-product")?;
    ensure!(tenant.usage()?.usage.device_us == 0, "{:?}", tenant.usage()?.usage);
    products_are_right(&tenant)?;
    let once = tenant.usage()?.usage.device_us;
    ensure!(once > 0, "the device's time was not charged");
    products_are_right(&tenant)?;
    ensure!(tenant.usage()?.usage.device_us > once, "it was not charged again");
    Ok(())
}

#[test]
fn a_task_multiplies_matrices_on_the_cores() -> Result<()> {
    multiplies_matrices_for_its_tenant("cpu")
}

#[test]
fn a_task_multiplies_matrices_on_a_gpu() -> Result<()> {
    multiplies_matrices_for_its_tenant("gpu:0")
}

#[test]
fn a_task_reads_digits_with_a_trained_model() -> Result<()> {
    let mut table = String::new();
    flate2::read::GzDecoder::new(digits::CSV_GZ).read_to_string(&mut table)?;
    let (images, labels): (Vec<&str>, Vec<&str>) = table.lines().filter_map(|line| line.rsplit_once(',')).unzip();
    let (_node, tenant) = deployed("cpu", json!({}), "functions/digit-reader")?;
    let answer = tenant.must_invoke("task", &images.join("\n"))?;
    let read: Vec<&str> = answer.lines().collect();
    ensure!(read.len() == digits::COUNT, "{} answers", read.len());
    let right = read.iter().zip(&labels).filter(|(read, label)| read == label).count();
    ensure!(right * 100 >= digits::COUNT * 97, "{right} of {} are right", digits::COUNT);
    let answer = tenant.invoke("task", b"1,2,3")?;
    let problem = answer.problem()?;
    ensure!(problem.status == 422 && problem.detail.contains("3 numbers where 64 belong"), "{problem:?}");
    Ok(())
}

fn function_error(answer: &Answer) -> Result<(String, String)> {
    ensure!(answer.problem_kind()?.0 == "function-error", "{answer:?}");
    let problem: serde_json::Value = serde_json::from_slice(&answer.body)?;
    let case = problem["function_error"].as_str().context("no case")?.to_owned();
    Ok((case, answer.problem()?.detail))
}

/// As often as it takes to notice what is not given back.
const OFTEN: usize = 10;

fn what_a_call_holds_is_limited_and_given_back(device: &str) -> Result<()> {
    let (_node, tenant) = deployed(device, json!({ "device_memory": 1_000_000 }), "functions/matrix-product")?;
    // A million elements: four times the quota.
    let (body, _) = matrices(1, 1, 1_000_000, 1);
    for _ in 0..OFTEN {
        let (case, detail) = function_error(&tenant.invoke("task", &body)?)?;
        ensure!(case == "out-of-device-memory" && detail.contains("`device_memory`"), "{case}: {detail}");
        products_are_right(&tenant)?;
    }
    Ok(())
}

#[test]
fn what_a_call_holds_on_the_cores_is_limited_and_given_back() -> Result<()> {
    what_a_call_holds_is_limited_and_given_back("cpu")
}

#[test]
fn what_a_call_holds_on_a_gpu_is_limited_and_given_back() -> Result<()> {
    what_a_call_holds_is_limited_and_given_back("gpu:0")
}

#[test]
fn shapes_that_do_not_fit_are_the_callers_mistake() -> Result<()> {
    let (_node, tenant) = deployed("cpu", json!({}), "functions/matrix-product")?;
    let (mut body, _) = matrices(1, 2, 2, 2);
    body.pop();
    let (case, detail) = function_error(&tenant.invoke("task", &body)?)?;
    ensure!(case == "bad-input" && detail.contains("31 came"), "{case}: {detail}");
    Ok(())
}

/// Calls of the host that never end are ended, and what the call had of the device is the next one's.
fn a_deadline_ends_what_computes(device: &str) -> Result<()> {
    let (node, tenant) = deployed(device, json!({ "wall_ms": 500 }), "tests/guests/hostcall")?;
    for _ in 0..3 {
        let answer = tenant.invoke("task", b"add 1000000000000")?;
        let problem = answer.problem()?;
        ensure!(problem.status == 504 && problem.limit.as_deref() == Some("wall_ms"), "{problem:?}");
        node.idle(Duration::from_secs(30))?;
    }
    // It may have to wait for a turn, but not for long: the one before is gone.
    eventually(Duration::from_secs(30), || Ok(tenant.invoke("task", b"add 1")?.status == 200))
}

#[test]
fn a_deadline_ends_what_computes_on_the_cores() -> Result<()> {
    a_deadline_ends_what_computes("cpu")
}

#[test]
fn a_deadline_ends_what_computes_on_a_gpu() -> Result<()> {
    a_deadline_ends_what_computes("gpu:0")
}

#[test]
fn a_node_without_devices_says_so() -> Result<()> {
    let (_node, tenant) = deployed("none", json!({}), "functions/matrix-product")?;
    let (body, _) = matrices(1, 1, 1, 1);
    let answer = tenant.invoke("task", &body)?;
    ensure!(answer.problem()?.detail.contains("device"), "{answer:?}");
    // What computes nothing needs none.
    tenant.must_deploy("echo", &components::echo()?)?;
    ensure!(tenant.must_invoke("echo", "hello")? == "hello");
    Ok(())
}

#[test]
fn devices_are_listed_with_their_limits_and_use() -> Result<()> {
    let user = User::new()?;
    let devices = user.json(&["devices"])?;
    let devices = devices.as_array().context("no list")?;
    let cores = devices.first().context("no device")?;
    ensure!(cores["id"] == "cpu" && cores["threads"].as_u64() > Some(0), "{cores}");
    let gpu = devices.get(1).context("no GPU, not even a software one: run scripts/setup.sh")?;
    ensure!(gpu["id"] == "gpu:0" && gpu["driver"].as_str().is_some_and(|driver| !driver.is_empty()), "{gpu}");
    for limit in ["buffer_bytes", "binding_bytes", "bindings", "workgroup_threads", "groups_per_dimension"] {
        ensure!(gpu["limits"][limit].as_u64() > Some(0), "`{limit}` in {gpu}");
    }
    ensure!(devices.iter().all(|device| device["used_for"].as_str().is_some_and(|text| !text.is_empty())));
    let table = user.must(&["devices"])?;
    for device in devices {
        let (id, name) = (device["id"].as_str().context("no id")?, device["name"].as_str().context("no name")?);
        ensure!(table.lines().any(|line| line.starts_with(id) && line.contains(name)), "{table}");
    }
    Ok(())
}

#[test]
fn every_device_is_measured() -> Result<()> {
    let user = User::new()?;
    let bench = ["bench", "devices", "--size", "64", "--models", "mlp.32"];
    let measured = user.json(&bench)?;
    let measured = measured.as_array().context("no list")?;
    ensure!(measured.len() == user.json(&["devices"])?.as_array().context("no list")?.len(), "{measured:?}");
    for device in measured {
        for figure in ["gflops", "gigabytes_per_second"] {
            ensure!(device[figure].as_f64() > Some(0.0), "`{figure}` in {device}");
        }
        let step = &device["steps"][0];
        ensure!(step["model"] == "mlp.32" && step["samples_per_second"].as_f64() > Some(0.0), "{device}");
    }
    let cores = user.json(&[&bench[..], &["--device", "cpu"]].concat())?;
    ensure!(cores.as_array().is_some_and(|list| list.len() == 1 && list[0]["device"] == "cpu"), "{cores}");
    let hidden = User::new()?.with("WEFT_VISIBLE_DEVICES", "cpu").json(&bench)?;
    ensure!(hidden.as_array().is_some_and(|list| list.len() == 1 && list[0]["device"] == "cpu"), "{hidden}");
    Ok(())
}

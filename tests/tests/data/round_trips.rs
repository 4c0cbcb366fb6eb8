//! Files that numpy, scikit-learn and safetensors wrote are read value by value.

use std::path::PathBuf;
use std::process::Command;

use serde::Deserialize;
use weft::dataset::read::{ArrayNames, Half, LabelColumn, LabelKind, Options};
use weft::dataset::rows::{Element, Features, Labels, Values};

use super::files::read;

/// What `write_files.py` says about some files.
#[derive(Deserialize)]
struct Case {
    files: Vec<String>,
    options: serde_json::Value,
    dense: Option<Dense>,
    sparse: Option<Sparse>,
    labels: LabelsOf,
    names: Option<Vec<String>>,
}

#[derive(Deserialize)]
struct Dense {
    element: String,
    shape: Vec<usize>,
    count: usize,
    x: Vec<f64>,
}

#[derive(Deserialize)]
struct Sparse {
    starts: Vec<u32>,
    columns: Vec<u32>,
    values: Vec<f64>,
    width: u32,
}

#[derive(Deserialize)]
struct LabelsOf {
    kind: serde_json::Value,
    y: Vec<f64>,
}

/// The Python that `scripts/python-venv.sh` has made.
fn python() -> PathBuf {
    let usual = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/python");
    let folder = std::env::var_os("WEFT_PYTHON").map_or(usual.into(), PathBuf::from);
    let python = folder.join("bin/python");
    assert!(python.exists(), "there is no `{}`; run `scripts/setup.sh test`", python.display());
    python
}

fn options(asked: &serde_json::Value) -> Options {
    let text = |name: &str| asked[name].as_str().map(String::from);
    let label_column = match asked.get("column") {
        None => LabelColumn::Last,
        Some(serde_json::Value::Null) => LabelColumn::None,
        Some(serde_json::Value::String(name)) => LabelColumn::Name(name.clone()),
        Some(index) => LabelColumn::Index(index.as_u64().unwrap() as usize),
    };
    let part = text("part").map(|part| if part == "train" { Half::Train } else { Half::Test });
    Options {
        label_column,
        arrays: ArrayNames { features: text("features"), labels: text("label"), part },
        labels: if text("labels").is_some() { LabelKind::Values } else { LabelKind::Auto },
        columns: asked["columns"].as_u64().map(|columns| columns as u32),
        ..Options::default()
    }
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

fn as_f32(numbers: &[f64]) -> Vec<f32> {
    numbers.iter().map(|&number| number as f32).collect()
}

#[test]
fn files_of_other_libraries_are_read_value_by_value() {
    let folder = tempfile::tempdir().unwrap();
    let wrote =
        Command::new(python()).arg("-c").arg(include_str!("write_files.py")).arg(folder.path()).output().unwrap();
    assert!(wrote.status.success(), "{}", String::from_utf8_lossy(&wrote.stderr));
    let expected = std::fs::read(folder.path().join("expected.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_slice(&expected).unwrap();
    assert!(cases.len() > 150, "{}", cases.len());
    for case in cases {
        let files: Vec<&str> = case.files.iter().map(String::as_str).collect();
        let what = format!("{files:?} with {}", case.options);
        let (samples, rows) =
            read(folder.path(), &files, &options(&case.options)).unwrap_or_else(|error| panic!("{what}: {error}"));

        if let Some(dense) = case.dense {
            let element = if dense.element == "u8" { Element::U8 } else { Element::F32 };
            assert_eq!(samples.features(), &Features::Dense { element, shape: dense.shape }, "{what}");
            assert_eq!(rows.count, dense.count, "{what}");
            let Values::Dense(bytes) = &rows.features else { panic!("{what}: sparse") };
            let read = match element {
                Element::U8 => bytes.iter().map(|&byte| f32::from(byte)).collect(),
                _ => floats(bytes),
            };
            assert_eq!(read, as_f32(&dense.x), "{what}");
        }
        if let Some(sparse) = case.sparse {
            assert_eq!(samples.features(), &Features::Sparse { columns: sparse.width }, "{what}");
            let (starts, columns, values) = (sparse.starts, sparse.columns, as_f32(&sparse.values));
            assert_eq!(rows.count + 1, starts.len(), "{what}");
            assert_eq!(rows.features, Values::Sparse { starts, columns, values }, "{what}");
        }
        match (&case.labels.kind, samples.labels()) {
            (serde_json::Value::Null, None) => assert!(rows.labels.is_empty(), "{what}"),
            (serde_json::Value::String(_), Some(Labels::Class)) => {
                let classes: Vec<f64> = rows
                    .labels
                    .chunks_exact(4)
                    .map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()).into())
                    .collect();
                assert_eq!(classes, case.labels.y, "{what}");
            }
            (serde_json::Value::Number(expected), Some(Labels::Values { width })) => {
                assert_eq!(expected.as_u64(), Some(width.into()), "{what}");
                assert_eq!(floats(&rows.labels), as_f32(&case.labels.y), "{what}");
            }
            (expected, found) => panic!("{what}: labels are {found:?} and should be {expected}"),
        }
        assert_eq!(samples.class_names(), case.names.as_deref(), "{what}");
    }
}

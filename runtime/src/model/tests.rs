use std::collections::BTreeMap;
use std::io::{self, Cursor};

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dataset::{Statistics, Transform};
use crate::digest::Digest;

fn info(name: &str, dtype: Dtype, shape: &[usize]) -> TensorInfo {
    TensorInfo { name: name.to_owned(), dtype, shape: shape.to_vec() }
}

fn meta() -> Meta {
    Meta {
        function: Some(Digest::of(b"function")),
        step: Some(1200),
        hyper_parameters: BTreeMap::from([("rate".to_owned(), json!(0.1)), ("hidden".to_owned(), json!([64, 32]))]),
        metrics: BTreeMap::from([("accuracy".to_owned(), 0.9125)]),
        data_set: Some(Digest::of(b"data")),
        created_ms: Some(1_760_000_000_123),
        input: Some(Input {
            shape: vec![1, 2, 2],
            transform: Transform::Standardise,
            statistics: Statistics { count: 8, mean: vec![0.5], squares: vec![2.0], low: vec![0.0], high: vec![1.0] },
        }),
        other: BTreeMap::from([("format".to_owned(), "pt".to_owned())]),
    }
}

fn written(tensors: &[(TensorInfo, Vec<u8>)], meta: &Meta) -> Result<Vec<u8>, WriteError> {
    let mut file = Vec::new();
    let infos: Vec<_> = tensors.iter().map(|(info, _)| info.clone()).collect();
    write(&infos, tensors.iter().map(|(_, bytes)| io::Result::Ok(bytes)), meta, &mut file)?;
    Ok(file)
}

fn two() -> Vec<(TensorInfo, Vec<u8>)> {
    vec![(info("mask", Dtype::U8, &[3]), vec![1, 0, 1]), (info("weight", Dtype::F32, &[2, 1]), (0..8).collect())]
}

/// A file with this header, and so many bytes after it.
fn file(header: &str, bytes: usize) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), &vec![0; bytes]].concat()
}

fn refused(file: Vec<u8>) -> String {
    Model::open(Cursor::new(file)).unwrap_err().to_string()
}

#[test]
fn tensors_and_metadata_come_back() {
    let mut model = Model::open(Cursor::new(written(&two(), &meta()).unwrap())).unwrap();
    assert_eq!(model.meta, meta());
    assert_eq!(
        model.tensors().cloned().collect::<Vec<_>>(),
        two().into_iter().map(|(info, _)| info).collect::<Vec<_>>()
    );
    assert_eq!(model.tensor("weight").unwrap(), (0..8).collect::<Vec<u8>>());
    assert_eq!(model.tensor("mask").unwrap(), [1, 0, 1]);
}

#[test]
fn the_reference_implementation_reads_what_is_written() {
    let file = written(&two(), &meta()).unwrap();
    let read = safetensors::SafeTensors::deserialize(&file).unwrap();
    assert_eq!(read.tensor("weight").unwrap().data(), (0..8).collect::<Vec<u8>>());
    let (_, header) = safetensors::SafeTensors::read_metadata(&file).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["weft.step"], "1200");
}

#[test]
fn tensors_start_where_a_mapped_file_can_be_used() {
    let file = written(&two(), &meta()).unwrap();
    assert_eq!(u64::from_le_bytes(file[..8].try_into().unwrap()) % 8, 0);
}

#[test]
fn the_same_model_is_the_same_bytes() {
    assert_eq!(written(&two(), &meta()).unwrap(), written(&two(), &meta()).unwrap());
}

#[test]
fn files_without_metadata_are_models_too() {
    let model = Model::open(Cursor::new(file("{}", 0))).unwrap();
    assert_eq!(model.meta, Meta::default());
}

#[test]
fn metrics_that_are_not_finite_do_not_spoil_the_rest() {
    let meta = Meta { metrics: BTreeMap::from([("loss".to_owned(), f64::NAN)]), ..meta() };
    let model = Model::open(Cursor::new(written(&two(), &meta).unwrap())).unwrap();
    assert!(model.meta.metrics["loss"].is_nan());
}

#[test]
fn metadata_that_lies_about_its_form_is_refused_by_key() {
    let error = refused(file(r#"{"__metadata__":{"weft.step":"many"}}"#, 0));
    assert!(error.starts_with("metadata `weft.step`"), "{error}");
    let error = refused(file(r#"{"__metadata__":{"weft.format":"9"}}"#, 0));
    assert!(error.contains("this version reads `1`"), "{error}");
}

#[test]
fn tensors_of_another_length_are_refused_when_written() {
    let mut tensors = two();
    tensors[0].1.push(0);
    let error = written(&tensors, &meta()).unwrap_err().to_string();
    assert_eq!(error, "tensor `mask` should have 3 bytes and came with 4");
}

#[test]
fn tensors_that_do_not_come_are_missed() {
    let error = write(&[info("a", Dtype::U8, &[])], std::iter::empty::<io::Result<Vec<u8>>>(), &meta(), io::sink());
    assert!(matches!(error, Err(WriteError::Missing { expected: 1, found: 0 })));
}

#[test]
fn names_that_cannot_be_used_are_refused_when_written() {
    for name in ["", "__metadata__", "a\nb", &"x".repeat(2000)] {
        assert!(
            matches!(written(&[(info(name, Dtype::U8, &[0]), vec![])], &meta()), Err(WriteError::Name(_))),
            "{name}"
        );
    }
    let twice = [(info("a", Dtype::U8, &[0]), vec![]), (info("a", Dtype::U8, &[0]), vec![])];
    assert!(matches!(written(&twice, &meta()), Err(WriteError::Twice(_))));
}

#[test]
fn headers_that_lie_are_refused() {
    let tensor = |dtype: &str, shape: &str, start: u64, end: u64| {
        format!(r#"{{"dtype":"{dtype}","shape":{shape},"data_offsets":[{start},{end}]}}"#)
    };
    let one = |entry: String| format!(r#"{{"a":{entry}}}"#);
    let good = tensor("F32", "[2]", 0, 8);
    let cases = [
        (vec![1, 2, 3], "too few"),
        (u64::MAX.to_le_bytes().to_vec(), "the header should have"),
        (file("not json", 0), "header of the model"),
        (file(&one(tensor("F33", "[2]", 0, 8)), 8), "tensor `a`"),
        (file(&one(tensor("F32", "[3]", 0, 8)), 8), "does not take the 8 bytes"),
        (file(&one(tensor("F32", "[2]", 8, 0)), 8), "does not take"),
        (file(&one(tensor("F32", "[9223372036854775807,9223372036854775807]", 0, 8)), 8), "does not take"),
        (file(&one(tensor("F32", "[-1]", 0, 8)), 8), "tensor `a`"),
        (file(&one(tensor("F4", "[3]", 0, 1)), 1), "does not take"),
        (file(&one(tensor("F32", "[2]", 8, 16)), 16), "should start at byte 0"),
        (file(&one(good.clone()), 7), "cut short"),
        (file(&one(good.clone()), 9), "cut short"),
        (file(&format!(r#"{{"a":{good},"b":{good}}}"#), 16), "should start at byte 8"),
        (file(&format!(r#"{{"a":{good},"a":{good}}}"#), 16), "`a` is there twice"),
        (file(&format!(r#"{{"\u001b":{good}}}"#), 8), "which is no name"),
    ];
    for (file, expected) in cases {
        let error = refused(file);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}

#[test]
fn a_tensor_that_is_not_there_is_named() {
    let mut model = Model::open(Cursor::new(written(&two(), &meta()).unwrap())).unwrap();
    assert_eq!(model.tensor("bias").unwrap_err().to_string(), "there is no tensor `bias`");
}

#[test]
fn types_that_numpy_does_not_have_are_refused_before_anything_is_written() {
    let tensors = [(info("a", Dtype::F8_E4M3, &[2]), vec![0; 2])];
    let mut model = Model::open(Cursor::new(written(&tensors, &meta()).unwrap())).unwrap();
    let mut npz = Vec::new();
    assert!(matches!(export_npz(&mut model, &mut npz), Err(ExportError::Type { .. })));
    assert!(npz.is_empty());
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Model::open(Cursor::new(bytes));
    }

    #[test]
    fn no_damage_makes_it_panic(place: prop::sample::Index, byte: u8, cut: prop::sample::Index) {
        let mut file = written(&two(), &meta()).unwrap();
        let at = place.index(file.len());
        file[at] = byte;
        file.truncate(cut.index(file.len()) + 1);
        if let Ok(mut model) = Model::open(Cursor::new(file)) {
            let names: Vec<_> = model.tensors().map(|tensor| tensor.name.clone()).collect();
            for name in names {
                let _ = model.tensor(&name);
            }
        }
    }
}

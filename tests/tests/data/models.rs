//! Models in Python: the real `safetensors` and `numpy` open what Weft writes, and Weft opens what they write.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter};

use anyhow::Result;
use weft::digest::Digest;
use weft::model::{Dtype, Meta, Model, TensorInfo, export_npz, write};
use weft_tests::python;

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// One tensor of every sort that needs care: dimensions, none, empty, other types, odd names.
fn tensors() -> Vec<(TensorInfo, Vec<u8>)> {
    let tensor = |name: &str, dtype, shape: &[usize], bytes| {
        (TensorInfo { name: name.to_owned(), dtype, shape: shape.to_vec() }, bytes)
    };
    vec![
        tensor("layer.0/weight", Dtype::F32, &[2, 3], floats(&[1.0, 2.0, 3.0, 4.0, 5.0, -6.5])),
        tensor("../bias", Dtype::F32, &[], floats(&[0.25])),
        tensor("mask", Dtype::BOOL, &[3], vec![1, 0, 1]),
        tensor("empty", Dtype::I64, &[0, 4], vec![]),
        tensor("steps", Dtype::I64, &[1], 1_i64.to_le_bytes().to_vec()),
        tensor("half", Dtype::BF16, &[2], [&0x3f80_u16.to_le_bytes()[..], &0xc020_u16.to_le_bytes()].concat()),
    ]
}

fn meta() -> Meta {
    Meta {
        function: Some(Digest::of(b"function")),
        step: Some(7),
        hyper_parameters: BTreeMap::from([("rate".to_owned(), 0.1.into())]),
        metrics: BTreeMap::from([("accuracy".to_owned(), 0.97)]),
        data_set: Some(Digest::of(b"data")),
        created_ms: Some(1_760_000_000_000),
        input: None,
        other: BTreeMap::from([("note".to_owned(), "kept as it is".to_owned())]),
    }
}

fn write_model(path: &std::path::Path) -> Result<()> {
    let (infos, bytes): (Vec<_>, Vec<_>) = tensors().into_iter().unzip();
    write(&infos, bytes.into_iter().map(io::Result::Ok), &meta(), BufWriter::new(File::create(path)?))?;
    Ok(())
}

#[test]
fn safetensors_in_python_reads_the_tensors_and_the_metadata() -> Result<()> {
    let folder = tempfile::tempdir()?;
    write_model(&folder.path().join("model.safetensors"))?;
    let script = r#"
import json, numpy
from safetensors import safe_open
with safe_open("model.safetensors", framework="numpy") as model:
    assert sorted(model.keys()) == ["../bias", "empty", "half", "layer.0/weight", "mask", "steps"], model.keys()
    assert numpy.array_equal(model.get_tensor("layer.0/weight"), numpy.float32([[1, 2, 3], [4, 5, -6.5]]))
    assert model.get_tensor("../bias").shape == () and model.get_tensor("../bias") == 0.25
    assert model.get_tensor("mask").dtype == bool and model.get_tensor("mask").tolist() == [True, False, True]
    assert model.get_tensor("empty").shape == (0, 4)
    assert model.get_tensor("steps").tolist() == [1]
    assert model.get_slice("half").get_dtype() == "BF16" and model.get_slice("half").get_shape() == [2]
    meta = model.metadata()
    assert meta["weft.step"] == "7" and meta["note"] == "kept as it is"
    assert json.loads(meta["weft.hyper_parameters"]) == {"rate": 0.1}
    assert json.loads(meta["weft.metrics"]) == {"accuracy": 0.97}
    assert meta["weft.function"].startswith("sha256:")
"#;
    python::run(script, folder.path())?;
    Ok(())
}

#[test]
fn numpy_reads_every_tensor_of_an_export() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("model.safetensors");
    write_model(&path)?;
    let npz = BufWriter::new(File::create(folder.path().join("model.npz"))?);
    export_npz(&mut Model::open(File::open(path)?)?, npz)?;
    let script = r#"
import numpy, zipfile
assert zipfile.ZipFile("model.npz").testzip() is None
model = numpy.load("model.npz", allow_pickle=False)
assert sorted(model.files) == ["bias", "empty", "half", "layer.0/weight", "mask", "steps"], model.files
assert numpy.array_equal(model["layer.0/weight"], numpy.float32([[1, 2, 3], [4, 5, -6.5]]))
assert model["bias"].shape == () and model["bias"] == 0.25
assert model["mask"].dtype == bool and model["mask"].tolist() == [True, False, True]
assert model["empty"].shape == (0, 4) and model["empty"].dtype == numpy.int64
assert model["steps"].tolist() == [1]
assert model["half"].dtype == numpy.float32 and model["half"].tolist() == [1.0, -2.5]
"#;
    python::run(script, folder.path())?;
    Ok(())
}

#[test]
fn a_model_that_python_wrote_is_opened() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let script = r#"
import numpy
from safetensors.numpy import save_file
tensors = {"a": numpy.arange(6, dtype=numpy.float32).reshape(2, 3), "b": numpy.uint8([7]), "c": numpy.array(2.5)}
save_file(tensors, "python.safetensors", metadata={"author": "somebody"})
"#;
    python::run(script, folder.path())?;
    let mut model = Model::open(File::open(folder.path().join("python.safetensors"))?)?;
    assert_eq!(model.meta.other["author"], "somebody");
    assert_eq!(model.info("a").map(|tensor| tensor.shape.clone()), Some(vec![2, 3]));
    assert_eq!(model.tensor("a")?, floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0]));
    assert_eq!(model.tensor("b")?, [7]);
    assert_eq!(model.tensor("c")?, 2.5_f64.to_le_bytes());
    Ok(())
}

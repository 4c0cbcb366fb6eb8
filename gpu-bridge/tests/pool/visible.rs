//! Which devices may be seen.

use std::sync::Arc;

use weft_gpu::Pool;
use weft_gpu::device::{Kind, Shared};
use weft_gpu::pool::PoolError;

use crate::support::{MEBIBYTE, Pretended};

fn seen(setting: &str) -> Result<Vec<String>, PoolError> {
    let kinds = [Kind::Discrete, Kind::Cpu, Kind::Integrated];
    let devices = kinds.map(|kind| Pretended::new(kind, MEBIBYTE) as Arc<dyn Shared>);
    let pool = Pool::visible(devices.to_vec(), setting)?;
    Ok(pool.devices().map(|(id, _)| id.to_string()).collect())
}

#[test]
fn all_none_names_and_indices_are_understood() {
    assert_eq!(seen("all").unwrap(), ["gpu:0", "cpu", "gpu:1"]);
    assert_eq!(seen("none").unwrap(), [""; 0]);
    assert_eq!(seen("cpu,gpu:0").unwrap(), ["gpu:0", "cpu"]);
    assert_eq!(seen(" gpu:1 ").unwrap(), ["gpu:1"]);
    assert_eq!(seen("1, 2,cpu").unwrap(), ["cpu", "gpu:1"]);
}

#[test]
fn a_gpu_that_is_opened_several_times_is_several() {
    assert_eq!(seen("gpu:0*3").unwrap(), ["gpu:0", "gpu:2", "gpu:3"]);
    assert_eq!(seen("cpu*1,gpu:1*2").unwrap(), ["cpu", "gpu:1", "gpu:2"]);
    assert!(matches!(seen("cpu*2").unwrap_err(), PoolError::Device(_)));
}

#[test]
fn an_unknown_entry_is_an_error_that_lists_what_there_is() {
    for (setting, entry) in [
        ("gpu:2", "gpu:2"),
        ("cpu,3", "3"),
        ("", ""),
        ("cpu,", ""),
        ("gpu", "gpu"),
        ("cpu,all", "all"),
        ("-1", "-1"),
        ("gpu:0*0", "gpu:0*0"),
        ("0*17", "0*17"),
        ("0*", "0*"),
    ] {
        let error = seen(setting).unwrap_err();
        assert!(matches!(&error, PoolError::UnknownVisible { entry: found, .. } if found == entry), "{error:?}");
        assert!(error.to_string().contains("`gpu:0`, `cpu`, `gpu:1`"), "{error}");
    }
}

//! The store where there is no host: none can be opened.

use crate::host::tensor::Tensor;
use crate::{Error, Result};

pub struct Versioned {
    pub value: Tensor,
    pub version: u64,
}

pub struct PeerValue {
    pub peer: u32,
    pub value: Tensor,
    pub version: u64,
}

/// Nobody can make one.
pub enum Bucket {}

pub fn open(_: &str) -> Result<Bucket> {
    Err(Error::other("the parameter store needs a host"))
}

macro_rules! absent {
    ($(fn $name:ident($($type:ty),*) -> $result:ty;)+) => {
        impl Bucket {
            $(absent! { @method $name ($($type),*) $result })+
        }
    };
    (@method $name:ident ($a:ty) $result:ty) => {
        pub fn $name(&self, _: $a) -> Result<$result> {
            match *self {}
        }
    };
    (@method $name:ident ($a:ty, $b:ty) $result:ty) => {
        pub fn $name(&self, _: $a, _: $b) -> Result<$result> {
            match *self {}
        }
    };
    (@method $name:ident ($a:ty, $b:ty, $c:ty) $result:ty) => {
        pub fn $name(&self, _: $a, _: $b, _: $c) -> Result<$result> {
            match *self {}
        }
    };
    (@method $name:ident ($a:ty, $b:ty, $c:ty, $d:ty) $result:ty) => {
        pub fn $name(&self, _: $a, _: $b, _: $c, _: $d) -> Result<$result> {
            match *self {}
        }
    };
}

absent! {
    fn get(&str) -> Option<Versioned>;
    fn get_if_newer(&str, u64) -> Option<Versioned>;
    fn wait_newer(&str, u64, u64) -> Versioned;
    fn set(&str, &Tensor, u64, bool) -> u64;
    fn compare_and_set(&str, u64, &Tensor) -> u64;
    fn get_bytes(&str) -> Option<Vec<u8>>;
    fn set_bytes(&str, &[u8]) -> u64;
    fn increment(&str, i64) -> i64;
    fn delete(&str) -> bool;
    fn take(&str) -> Option<Versioned>;
    fn expire(&str, u64) -> bool;
    fn list(&str, &str, u32) -> Vec<String>;
    fn contribute(&str, u32, &Tensor) -> bool;
    fn merged(&str, u32, u64) -> Tensor;
    fn barrier(&str, u32, u32, u64) -> ();
    fn publish(&str, u32, &Tensor) -> u64;
    fn latest(&str) -> Vec<PeerValue>;
    fn claim(&str) -> u64;
}

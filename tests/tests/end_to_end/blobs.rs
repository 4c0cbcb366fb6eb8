//! Blobs: what every place for them must do, what S3 does on bad days, and a node on each of them.

mod bucket;
mod conformance;
mod places;
mod storage;

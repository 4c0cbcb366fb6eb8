//! Which errors a job waits out, and which fail it.

use std::io;
use std::time::Duration;

use weft_gpu::pool::{DeviceId, PoolError, Wish};

use super::*;
use crate::blob::BlobError;
use crate::catalog::CatalogError;
use crate::digest::Digest;
use crate::job::channel::ChannelError;
use crate::meta::MetaError;
use crate::params::ParamError;
use crate::places::NoPlace;
use crate::registry::RegistryError;
use crate::sandbox::{CompileError, GateFull};
use crate::tenant::{OverLimit, StorageFull};

fn disk() -> io::Error {
    io::ErrorKind::StorageFull.into()
}

fn over(name: &'static str, wanted: u64) -> OverLimit {
    OverLimit { name, limit: 100, wanted }
}

fn nothing_fits(wanted: usize) -> PoolError {
    PoolError::NothingFits { wanted, wish: Wish::Auto, rooms: Vec::new(), fits: 0, largest: 100 }
}

fn bucket_away() -> BlobError {
    BlobError::Store { place: "s3://b".to_owned(), what: "put".to_owned(), why: "no answer".to_owned() }
}

fn redis_away() -> ParamError {
    ParamError::Unavailable("no answer".to_owned())
}

fn lost() -> weft_gpu::Error {
    weft_gpu::Error::DeviceLost { reason: "reset".to_owned() }
}

fn storage_full() -> StorageFull {
    StorageFull { asked: 2, limit: 1, used: 0 }
}

/// What is in the way now: a disk, a bucket, a store, a device, a compiler, others.
fn passing() -> Vec<JobError> {
    let (second, file) = (Duration::from_secs(1), || "file".to_owned());
    let compile = [
        CompileError::Busy(GateFull::Node(1)),
        CompileError::QueueTimeout { name: "queue_timeout", limit: second },
        CompileError::TooLong(second),
        CompileError::Failed("killed".to_owned()),
    ];
    let compile = compile.map(|error| JobError::Registry(RegistryError::Compile(error)));
    let params = [redis_away(), ParamError::Full("oom".to_owned()), ParamError::Lost("emptied".to_owned())];
    let params = params.map(JobError::Params);
    let others = [
        JobError::Device(nothing_fits(100)),
        JobError::Device(lost().into()),
        JobError::NoDevice(nothing_fits(100).into()),
        JobError::NoDevice(NoDevice::Busy(GateFull::Tenant(1))),
        JobError::NoDevice(NoDevice::TimedOut(second)),
        JobError::Place(NoPlace::TimedOut(second)),
        JobError::Place(NoPlace::Full(GateFull::Node(1))),
        JobError::Meta(MetaError::Interrupted),
        JobError::Io { what: "reading", error: disk() },
        JobError::Stopping,
        JobError::Passing("a busy device".to_owned()),
        JobError::Memory(over("max_memory", 100)),
        JobError::Blob(BlobError::Io { what: file(), error: disk() }),
        JobError::Blob(bucket_away()),
        JobError::Blob(BlobError::Unusable { place: file(), why: "denied".to_owned() }),
        JobError::Channel(ChannelError::Blob(bucket_away())),
        JobError::Channel(ChannelError::Params(redis_away())),
        JobError::Channel(ChannelError::Params(ParamError::OverLimit(over("max_memory", 1)))),
        JobError::Channel(ChannelError::Params(ParamError::KeptAnswers { most: 1 })),
        JobError::Registry(RegistryError::Blob(bucket_away())),
        JobError::Registry(RegistryError::Meta(MetaError::Interrupted)),
        JobError::Registry(RegistryError::Io { what: file(), error: disk() }),
        JobError::Registry(RegistryError::NoMemory(over("max_memory", 100))),
        JobError::Catalog(CatalogError::Blob(bucket_away())),
        JobError::Catalog(CatalogError::Meta(MetaError::Interrupted)),
        JobError::Catalog(CatalogError::Io { what: file(), error: disk() }),
        JobError::Catalog(CatalogError::Place(NoPlace::TimedOut(second))),
        JobError::Catalog(CatalogError::Memory(over("memory", 100))),
        JobError::Catalog(CatalogError::Changed { what: "model", name: file() }),
        JobError::Catalog(CatalogError::Stopping),
    ];
    others.into_iter().chain(compile).chain(params).collect()
}

/// What is wrong with the job, its function, its data or its tenant's limits, and will be as long as nobody mends it.
fn lasting() -> Vec<JobError> {
    let (digest, name) = (Digest::of(b"weft"), || "name".to_owned());
    let damaged = || BlobError::Damaged { digest, why: "cut off".to_owned() };
    let compile = [CompileError::TooMuchMemory(1), CompileError::TooLarge(1), CompileError::Refused(name())];
    let compile = compile.map(|error| JobError::Registry(RegistryError::Compile(error)));
    let slot = weft_core::sync::Slot { round: 1, layer: 0, shard: 0, worker: 0, claim: 1 };
    let others = [
        JobError::Device(nothing_fits(101)),
        JobError::Device(PoolError::Empty),
        JobError::Device(PoolError::NoSuchDevice { wish: Wish::Gpu, devices: vec![DeviceId::Cpu(0)] }),
        JobError::NoDevice(nothing_fits(101).into()),
        JobError::NotFound(name()),
        JobError::Exists(name()),
        JobError::Bad(BadSpec::new("epochs", "too many")),
        JobError::Refused("another shape".to_owned()),
        JobError::OutOfMemory("of its worker".to_owned()),
        JobError::OtherRequest(name()),
        JobError::Wrong { name: name(), state: "done", problem: "it is over" },
        JobError::Quota { name: "jobs", limit: 1, what: name() },
        JobError::TenantDeleted,
        JobError::Storage(storage_full()),
        JobError::LargeAnswer(1),
        JobError::Memory(over("max_memory", 101)),
        JobError::Blob(BlobError::NotFound(digest)),
        JobError::Blob(damaged()),
        JobError::Channel(ChannelError::Damaged { slot, why: name() }),
        JobError::Channel(ChannelError::Storage(storage_full())),
        JobError::Channel(ChannelError::Params(ParamError::OverLimit(over("params_bytes", 1)))),
        JobError::Params(ParamError::Ended),
        JobError::Params(ParamError::Damaged(name())),
        JobError::Registry(RegistryError::NotFound(name())),
        JobError::Registry(RegistryError::Refused(name())),
        JobError::Registry(RegistryError::Blob(damaged())),
        JobError::Registry(RegistryError::NoMemory(over("memory", 101))),
        JobError::Registry(RegistryError::Storage(storage_full())),
        JobError::Registry(RegistryError::TenantDeleted),
        JobError::Catalog(CatalogError::NotFound { what: "data set", name: name() }),
        JobError::Catalog(CatalogError::Refused(name())),
        JobError::Catalog(CatalogError::Blob(damaged())),
        JobError::Catalog(CatalogError::Memory(over("memory", 101))),
        JobError::Catalog(CatalogError::Quota { name: "models", limit: 1, what: name() }),
        JobError::Catalog(CatalogError::TenantDeleted),
    ];
    others.into_iter().chain(compile).collect()
}

#[test]
fn a_job_waits_for_what_passes_and_fails_of_what_does_not() {
    for error in passing() {
        assert!(error.passes(), "a job would fail of this: {error}");
        assert!(matches!(team::Halt::of(&error), team::Halt::Waits(_)), "{error}");
    }
    for error in lasting() {
        assert!(!error.passes(), "a job would wait for this for ever: {error}");
        assert!(!matches!(team::Halt::of(&error), team::Halt::Waits(_)), "{error}");
    }
}

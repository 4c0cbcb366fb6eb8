//! Batches reach a GPU as they reach the CPU. A software GPU will do.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;
use weft::dataset::batches::{Batch, Batches, Inputs, Options, Source, Subset};
use weft::dataset::manifest::{BlockRef, FORMAT, Statistics, Transform};
use weft::dataset::rows::Element;
use weft::dataset::shard::Plan;
use weft::dataset::{Features, Labels, Manifest, Split};
use weft::digest::Digest;
use weft_gpu::device::cpu::Cpu;
use weft_gpu::device::gpu::{Adapter, Gpu};
use weft_gpu::device::{Device, Shared};
use weft_gpu::{Context, Crew, Limits};

fn context(device: Arc<dyn Device>) -> Context {
    Context::new(device, Arc::new(Crew::new(1)), Limits::default())
}

fn gpu() -> Gpu {
    let first = Adapter::all().into_iter().next();
    let adapter =
        first.unwrap_or_else(|| panic!("there is no Vulkan device here; `make setup` installs a software one"));
    Gpu::open(adapter, None).unwrap()
}

fn manifest(features: Features, transform: Transform, count: u32, block: &Bytes) -> Manifest {
    let block = BlockRef { digest: Digest::of(block), count, bytes: block.len() as u64 };
    Manifest {
        format: FORMAT,
        features,
        labels: Some(Labels::Class),
        transform,
        statistics: Statistics {
            count: 1000,
            mean: vec![100.0],
            squares: vec![5e6],
            low: vec![0.0],
            high: vec![255.0],
        },
        train: Split { count: count.into(), blocks: vec![block], classes: Vec::new() },
        test: Split::default(),
        synthetic: None,
        class_names: Vec::new(),
    }
}

fn batches(manifest: &Manifest, block: &Bytes, context: &Context) -> Vec<Batch> {
    let blocks = Arc::new(HashMap::from([(Digest::of(block), block.clone())]));
    let source = Source { name: "digits", manifest, part: Subset::Train, blocks };
    let options = Options::new(Plan::default(), NonZeroU32::new(16).unwrap());
    Batches::start(source, options, context).unwrap().map(|batch| batch.unwrap()).collect()
}

fn labels(batch: &Batch) -> Vec<i32> {
    batch.labels.as_ref().unwrap().to_vec().unwrap()
}

#[test]
fn dense_batches_arrive_on_a_gpu() {
    let mut block: Vec<u8> = (0..50_i32).flat_map(|sample| (sample % 10).to_le_bytes()).collect();
    block.extend((0..50 * 63).map(|index| (index % 251) as u8));
    let block = Bytes::from(block);
    let features = Features::Dense { element: Element::U8, shape: vec![1, 7, 9] };
    let manifest = manifest(features, Transform::Standardise, 50, &block);
    let gpu = gpu();
    let there = batches(&manifest, &block, &context(gpu.open(&"test".into(), NonZeroU32::MIN).unwrap()));
    let here = batches(&manifest, &block, &context(Arc::new(Cpu::new())));
    assert_eq!(there.len(), 4);
    for (there, here) in there.iter().zip(&here) {
        let (Inputs::Dense(gpu), Inputs::Dense(cpu)) = (&there.features, &here.features) else { panic!("not dense") };
        assert_eq!(gpu.shape(), cpu.shape());
        assert_eq!(gpu.to_vec::<f32>().unwrap(), cpu.to_vec::<f32>().unwrap());
        assert_eq!(labels(there), labels(here));
    }
}

#[test]
fn sparse_batches_arrive_on_a_gpu() {
    let labels: Vec<u8> = [0_u8; 40 * 4].to_vec();
    let starts: Vec<u8> = (0..=40_u32).flat_map(|sample| (sample * 2).to_le_bytes()).collect();
    let columns: Vec<u8> = (0..80_u32).flat_map(|index| (index % 2 * 7 + index / 20).to_le_bytes()).collect();
    let values: Vec<u8> = (0..80_u32).flat_map(|index| (index as f32 - 3.5).to_le_bytes()).collect();
    let block = Bytes::from([labels, starts, columns, values].concat());
    let manifest = manifest(Features::Sparse { columns: 20 }, Transform::Normalise, 40, &block);
    let gpu = gpu();
    let there = batches(&manifest, &block, &context(gpu.open(&"test".into(), NonZeroU32::MIN).unwrap()));
    let here = batches(&manifest, &block, &context(Arc::new(Cpu::new())));
    assert_eq!(there.len(), 3);
    for (there, here) in there.iter().zip(&here) {
        let (Inputs::Sparse(gpu), Inputs::Sparse(cpu)) = (&there.features, &here.features) else {
            panic!("not sparse")
        };
        assert_eq!(gpu.offsets.to_vec::<u32>().unwrap(), cpu.offsets.to_vec::<u32>().unwrap());
        assert_eq!(gpu.columns.to_vec::<u32>().unwrap(), cpu.columns.to_vec::<u32>().unwrap());
        assert_eq!(gpu.values.to_vec::<f32>().unwrap(), cpu.values.to_vec::<f32>().unwrap());
    }
}

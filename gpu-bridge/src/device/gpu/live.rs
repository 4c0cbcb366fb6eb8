//! An open device: what lives from its opening to its loss. A lost device is replaced by a new one of these.

use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wgpu::{BindGroupLayout, BindGroupLayoutEntry, BindingType, BufferBindingType, Features, ShaderStages};

use super::adapter::Adapter;
use super::bindings::Bindings;
use super::pipeline::Pipelines;
use super::slab::Slabs;
use crate::device::Kind;
use crate::error::{Error, Result};

/// The most bytes that the parameters of one dispatch take.
pub(super) const PARAMETER_BYTES: u64 = 512;

/// The most bytes of parameters that are part of a command. Every GPU takes 128.
const IMMEDIATE_BYTES: u32 = 256;

/// The fewest bytes that are ever bound. Known to the layout, they are checked once and not at every dispatch.
const OPERAND_BYTES: u64 = 16;

/// What a device is asked for where it has it.
const WANTED: Features = Features::TIMESTAMP_QUERY
    .union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS)
    .union(Features::PIPELINE_CACHE)
    .union(Features::IMMEDIATES);

/// The most operands that a kernel has, pieces of large ones counted.
const MAX_OPERANDS: usize = 16;

pub(super) struct Live {
    pub(super) device: wgpu::Device,
    pub(super) queue: wgpu::Queue,
    pub(super) limits: wgpu::Limits,
    pub(super) class: Class,
    pub(super) timestamps: bool,
    pub(super) slabs: Slabs,
    pub(super) pipelines: Pipelines,
    pub(super) bindings: Bindings,
    pub(super) faults: Arc<Faults>,
    parameters: BindGroupLayout,
    operands: [OnceLock<BindGroupLayout>; MAX_OPERANDS + 1],
}

/// What kernels are chosen by, and how fast such a device is taken to be when work is cut into turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Class {
    /// Runs on the machine's cores: workgroup memory and barriers cost there and gain nothing.
    pub(super) software: bool,
    /// Floating-point operations in a microsecond.
    pub(super) flops: u64,
    /// Bytes moved in a microsecond.
    pub(super) bytes: u64,
    /// The most rounds of all loops in one thread, inner and outer ones: a dispatch is cut between groups of threads, not
    /// inside them, so this is what nobody can stop. It takes a fraction of a second.
    pub(super) longest_loop: u64,
}

/// Mesa's software GPU leaves a loop after 65,535 rounds, counted over all loops of a thread, and says nothing.
const LONGEST_SOFTWARE_LOOP: u64 = 65_000;

impl Class {
    fn of(kind: Kind) -> Self {
        match kind {
            Kind::Discrete => Self { software: false, flops: 2_000_000, bytes: 200_000, longest_loop: 1 << 22 },
            Kind::Integrated | Kind::Virtual => {
                Self { software: false, flops: 200_000, bytes: 25_000, longest_loop: 1 << 22 }
            }
            Kind::Software | Kind::Cpu => {
                Self { software: true, flops: 8_000, bytes: 4_000, longest_loop: LONGEST_SOFTWARE_LOOP }
            }
        }
    }
}

/// What went wrong with the device as a whole.
#[derive(Default)]
pub(super) struct Faults {
    lost: AtomicBool,
    reason: Mutex<String>,
    /// Errors that no caller could be told: there should be none.
    uncaptured: AtomicU64,
}

impl Faults {
    pub(super) fn lose(&self, reason: &str) {
        let mut place = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.lost.swap(true, Ordering::AcqRel) {
            *place = reason.to_owned();
        }
    }

    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn check(&self) -> Result<()> {
        if self.is_lost() { Err(self.error()) } else { Ok(()) }
    }

    pub(super) fn error(&self) -> Error {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner).clone();
        Error::DeviceLost { reason }
    }

    pub(super) fn uncaptured(&self) -> u64 {
        self.uncaptured.load(Ordering::Relaxed)
    }
}

impl Live {
    pub(super) fn open(adapter: &Adapter, cache: Option<&std::path::Path>) -> Result<Arc<Self>> {
        let features = adapter.features() & WANTED;
        let mut limits = adapter.limits();
        let immediates = if features.contains(Features::IMMEDIATES) { IMMEDIATE_BYTES } else { 0 };
        limits.max_immediate_size = limits.max_immediate_size.min(immediates);
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("weft"),
            required_features: features,
            required_limits: limits.clone(),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            memory_hints: wgpu::MemoryHints::Performance,
            trace: wgpu::Trace::Off,
        };
        let (device, queue) = pollster::block_on(adapter.adapter.request_device(&descriptor))
            .map_err(|error| Error::DeviceLost { reason: format!("{} cannot be opened: {error}", adapter.name()) })?;
        let faults = Arc::new(Faults::default());
        let on_error = Arc::clone(&faults);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            on_error.uncaptured.fetch_add(1, Ordering::Relaxed);
            tracing::error!("an error of the GPU that belongs to no call: {error}");
        }));
        let on_loss = Arc::clone(&faults);
        device.set_device_lost_callback(move |reason, message| on_loss.lose(&format!("{reason:?}: {message}")));
        let timestamps = features.contains(Features::TIMESTAMP_QUERY | Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);
        let parameters = layout(&device, 1, true);
        let pipelines = Pipelines::new(&device, features.contains(Features::PIPELINE_CACHE), adapter.info(), cache);
        Ok(Arc::new(Self {
            slabs: Slabs::new(&device, &limits),
            pipelines,
            bindings: Bindings::default(),
            class: Class::of(adapter.kind()),
            timestamps,
            parameters,
            operands: [const { OnceLock::new() }; MAX_OPERANDS + 1],
            faults,
            device,
            queue,
            limits,
        }))
    }

    /// The bytes that are kept in a command for so many words of parameters: few different numbers, so that kernels
    /// have few different layouts. Zero if these are too many, and lie in a buffer, which costs more.
    pub(super) fn immediate_bytes(&self, words: usize) -> u32 {
        let bytes = (words as u32 * 4).next_power_of_two().max(IMMEDIATE_BYTES / 4);
        if bytes <= self.limits.max_immediate_size { bytes } else { 0 }
    }

    /// The layout of the one binding that holds a dispatch's parameters.
    pub(super) fn parameter_layout(&self) -> &BindGroupLayout {
        &self.parameters
    }

    /// The layout of so many operands.
    pub(super) fn operand_layout(&self, operands: usize) -> Result<&BindGroupLayout> {
        let most = MAX_OPERANDS.min(self.limits.max_storage_buffers_per_shader_stage as usize - 1);
        match self.operands.get(operands) {
            Some(place) if operands <= most => Ok(place.get_or_init(|| layout(&self.device, operands as u32, false))),
            _ => Err(Error::TooLarge { reason: format!("{operands} buffers in one kernel, this GPU takes {most}") }),
        }
    }

    /// Runs `body` on this thread and gives what the GPU had to say about it.
    pub(super) fn scoped<T>(&self, body: impl FnOnce() -> T) -> (T, Option<wgpu::Error>) {
        let scopes = [wgpu::ErrorFilter::Internal, wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation]
            .map(|filter| self.device.push_error_scope(filter));
        let result = body();
        let mut first = None;
        for scope in scopes.into_iter().rev() {
            first = first.or(pollster::block_on(scope.pop()));
        }
        (result, first)
    }

    /// Bytes that one binding may have, a multiple of every alignment.
    pub(super) fn binding_bytes(&self) -> u64 {
        self.limits.max_storage_buffer_binding_size & !255
    }
}

/// Every operand may be read and written: parts of one buffer are bound side by side, and a buffer has one use at a time.
fn layout(device: &wgpu::Device, bindings: u32, parameters: bool) -> BindGroupLayout {
    let ty = BindingType::Buffer {
        ty: if parameters { BufferBindingType::Uniform } else { BufferBindingType::Storage { read_only: false } },
        has_dynamic_offset: parameters,
        min_binding_size: NonZeroU64::new(if parameters { PARAMETER_BYTES } else { OPERAND_BYTES }),
    };
    let entry = |binding| BindGroupLayoutEntry { binding, visibility: ShaderStages::COMPUTE, ty, count: None };
    let entries: Vec<_> = (0..bindings).map(entry).collect();
    device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: None, entries: &entries })
}

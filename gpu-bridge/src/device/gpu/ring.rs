//! Staging buffers: for each batch at the GPU one set, used in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use wgpu::{BufferDescriptor, BufferUsages};

use super::live::{Live, PARAMETER_BYTES};
use super::session::{ARENA_BYTES, Batch, Command, Parameters, READBACK_BYTES};
use crate::error::{Error, Result};
use crate::threads::thread_time;

/// Before the bytes that were asked for: two timestamps, and what kernels found.
const STATUS_BYTES: u64 = 256;
const FOUND_AT: u64 = 16;

/// How far mapping the read-back buffer is.
const PENDING: u8 = 0;
const MAPPED: u8 = 1;
const FAILED: u8 = 2;

pub(super) struct Ring {
    free: Vec<Slot>,
}

impl Ring {
    pub(super) fn new(live: &Live, slots: usize) -> Result<Self> {
        let (free, error) = live.scoped(|| (0..slots).map(|_| Slot::new(live)).collect());
        match error {
            None => Ok(Self { free }),
            Some(error) => Err(Error::DeviceFull { wanted: ARENA_BYTES + READBACK_BYTES, reason: error.to_string() }),
        }
    }

    pub(super) fn take(&mut self) -> Option<Slot> {
        self.free.pop()
    }

    pub(super) fn give(&mut self, slot: Slot) {
        self.free.push(slot);
    }
}

/// Buffers for one batch.
pub(super) struct Slot {
    arena: wgpu::Buffer,
    parameters: wgpu::BindGroup,
    readback: wgpu::Buffer,
    timestamps: Option<(wgpu::QuerySet, wgpu::Buffer)>,
    mapping: Arc<AtomicU8>,
}

/// What came of a batch.
pub(super) struct Finished {
    pub(super) time: Duration,
    pub(super) found: [u32; 4],
    pub(super) bytes: Vec<u8>,
}

impl Slot {
    fn new(live: &Live) -> Self {
        let buffer = |size, usage| {
            live.device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        };
        // The last parameters may be bound past what the arena holds.
        let arena = buffer(
            ARENA_BYTES + PARAMETER_BYTES,
            BufferUsages::UNIFORM | BufferUsages::COPY_SRC | BufferUsages::COPY_DST,
        );
        let parameters = live.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: live.parameter_layout(),
            entries: &[wgpu::BindGroupEntry {
                binding: 0,
                resource: wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                    buffer: &arena,
                    offset: 0,
                    size: std::num::NonZeroU64::new(PARAMETER_BYTES),
                }),
            }],
        });
        let timestamps = live.timestamps.then(|| {
            let queries = live.device.create_query_set(&wgpu::QuerySetDescriptor {
                label: None,
                ty: wgpu::QueryType::Timestamp,
                count: 2,
            });
            (
                queries,
                buffer(wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT, BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC),
            )
        });
        let readback = buffer(STATUS_BYTES + READBACK_BYTES, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
        Self { arena, parameters, readback, timestamps, mapping: Arc::default() }
    }

    /// Encodes a batch and gives it to the GPU. Says what processor time the encoding took: a software GPU may do all of
    /// the work while it is given it, and takes the cores from this thread besides.
    pub(super) fn submit(&self, live: &Live, batch: &Batch) -> (wgpu::SubmissionIndex, Duration) {
        let start = thread_time();
        if !batch.arena.is_empty() {
            let mut arena = batch.arena.as_slice();
            let padded;
            if !arena.len().is_multiple_of(4) {
                padded = [arena, &[0; 3][..4 - arena.len() % 4]].concat();
                arena = &padded;
            }
            live.queue.write_buffer(&self.arena, 0, arena);
        }
        let mut encoder = live.device.create_command_encoder(&wgpu::CommandEncoderDescriptor { label: None });
        self.encode(live, batch, &mut encoder);
        if let Some((queries, resolved)) = &self.timestamps {
            encoder.write_timestamp(queries, 1);
            encoder.resolve_query_set(queries, 0..2, resolved, 0);
            encoder.copy_buffer_to_buffer(resolved, 0, &self.readback, 0, 16);
        }
        if batch.checks {
            let fault = &batch.fault;
            encoder.copy_buffer_to_buffer(&fault.buffer, fault.offset, &self.readback, FOUND_AT, 16);
            encoder.clear_buffer(&fault.buffer, fault.offset, Some(16));
        }
        self.mapping.store(PENDING, Ordering::Release);
        let mapping = Arc::clone(&self.mapping);
        encoder.map_buffer_on_submit(&self.readback, wgpu::MapMode::Read, .., move |mapped| {
            mapping.store(if mapped.is_ok() { MAPPED } else { FAILED }, Ordering::Release);
        });
        let commands = encoder.finish();
        let encoded = thread_time().saturating_sub(start);
        (live.queue.submit([commands]), encoded)
    }

    fn encode(&self, live: &Live, batch: &Batch, encoder: &mut wgpu::CommandEncoder) {
        let cancelled = batch.progress.is_cancelled();
        let most = live.limits.max_compute_workgroups_per_dimension;
        let mut pass: Option<wgpu::ComputePass<'static>> = None;
        let mut current: Option<&wgpu::ComputePipeline> = None;
        let mut clock = self.start_clock(batch, cancelled, encoder);
        for command in &batch.commands {
            match command {
                // Even then new memory is cleared: its owner may go on later.
                Command::Dispatch { .. } if cancelled => {}
                Command::Dispatch { pipeline, group, parameters, groups } => {
                    let pass = pass.get_or_insert_with(|| {
                        current = None;
                        begin(encoder, clock.take())
                    });
                    if current != Some(pipeline) {
                        pass.set_pipeline(pipeline);
                        current = Some(pipeline);
                    }
                    self.set_parameters(pass, batch, *parameters);
                    pass.set_bind_group(0, group, &[]);
                    pass.dispatch_workgroups((*groups).min(most), groups.div_ceil(most), 1);
                }
                Command::Clear(region) => {
                    pass = None;
                    encoder.clear_buffer(&region.buffer, region.offset, Some(region.bytes));
                }
                Command::Upload { from, to, at, bytes } => {
                    pass = None;
                    encoder.copy_buffer_to_buffer(&self.arena, *from, &to.buffer, to.offset + at, *bytes);
                }
                Command::Download { from, at, bytes } => {
                    pass = None;
                    encoder.copy_buffer_to_buffer(&from.buffer, from.offset + at, &self.readback, STATUS_BYTES, *bytes);
                }
            }
        }
        drop(pass);
    }

    /// Takes the time, or gives the queries with which the first pass is to take it: this saves a command buffer in front.
    fn start_clock(
        &self,
        batch: &Batch,
        cancelled: bool,
        encoder: &mut wgpu::CommandEncoder,
    ) -> Option<&wgpu::QuerySet> {
        let (queries, _) = self.timestamps.as_ref()?;
        if !cancelled && matches!(batch.commands.first(), Some(Command::Dispatch { .. })) {
            return Some(queries);
        }
        encoder.write_timestamp(queries, 0);
        None
    }

    fn set_parameters(&self, pass: &mut wgpu::ComputePass<'_>, batch: &Batch, parameters: Parameters) {
        match parameters {
            Parameters::Immediate { from, to } => {
                pass.set_immediates(0, bytemuck::cast_slice(&batch.words[from as usize..to as usize]));
            }
            Parameters::Uniform(at) => pass.set_bind_group(1, &self.parameters, &[at]),
        }
    }

    /// Reads what a batch that is done has left. `elapsed` stands in where the GPU keeps no time.
    pub(super) fn finish(&self, live: &Live, batch: &Batch, elapsed: Duration) -> Result<Finished> {
        if self.mapping.load(Ordering::Acquire) == PENDING {
            let _ = live.device.poll(wgpu::PollType::wait_indefinitely());
        }
        let failed = |reason: String| Error::Internal { op: "read", reason };
        if self.mapping.load(Ordering::Acquire) != MAPPED {
            return Err(failed("the staging buffer was not mapped".into()));
        }
        let bytes = batch.commands.iter().rev().find_map(|command| match command {
            Command::Download { bytes, .. } => Some(*bytes),
            _ => None,
        });
        let finished = {
            let view = self
                .readback
                .get_mapped_range(..STATUS_BYTES + bytes.unwrap_or(0))
                .map_err(|error| failed(error.to_string()))?;
            let word = |at: u64| {
                let at = at as usize;
                u32::from_le_bytes([view[at], view[at + 1], view[at + 2], view[at + 3]])
            };
            let tick = |at: u64| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
            let time = match &self.timestamps {
                Some(_) => {
                    let ticks = tick(8).saturating_sub(tick(0));
                    Duration::from_nanos((ticks as f64 * f64::from(live.queue.get_timestamp_period())) as u64)
                }
                None => elapsed,
            };
            let found = [0, 4, 8, 12].map(|at| if batch.checks { word(FOUND_AT + at) } else { 0 });
            Finished { time, found, bytes: view[STATUS_BYTES as usize..].to_vec() }
        };
        self.readback.unmap();
        Ok(finished)
    }
}

/// A pass, which takes the time as it begins if it is given queries.
fn begin(encoder: &mut wgpu::CommandEncoder, clock: Option<&wgpu::QuerySet>) -> wgpu::ComputePass<'static> {
    let timestamp_writes = clock.map(|query_set| wgpu::ComputePassTimestampWrites {
        query_set,
        beginning_of_pass_write_index: Some(0),
        end_of_pass_write_index: None,
    });
    encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: None, timestamp_writes }).forget_lifetime()
}

impl Batch {
    pub(super) fn dispatches(&self) -> u64 {
        self.commands.iter().filter(|command| matches!(command, Command::Dispatch { .. })).count() as u64
    }
}

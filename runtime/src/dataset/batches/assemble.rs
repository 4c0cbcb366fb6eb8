//! One batch after the other, from blocks straight into tensors.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weft_gpu::device::cpu::vectorized;
use weft_gpu::{Context, Tensor};

use super::{Batch, BatchError, Cause, Csr, Inputs, Options, Source};
use crate::dataset::blocks::{Blocks, read_part, read_whole};
use crate::dataset::manifest::{BlockRef, Split};
use crate::dataset::rows::{Features, Labels};
use crate::dataset::shard::{Permutation, Position, Shard};
use crate::dataset::transform::Prepared;

/// Samples that are looked up at a time.
const LOOKED_UP: u64 = 1024;

/// How many rows ahead memory is asked for: shuffled rows are where no processor expects them.
const PREFETCHED: usize = 2;

/// Makes the batches of one shard and epoch, on the caller's thread.
pub struct Assembler {
    dataset: String,
    next: u64,
    end: u64,
    options: Options,
    context: Context,
    reader: Reader,
    /// What is divided among the shards.
    split: Split,
    /// Made when the first batch is asked for: a stratified one needs labels.
    shard: Option<Shard>,
    gathered: Gathered,
}

/// What a batch is gathered into before there are tensors of its size.
#[derive(Default)]
struct Gathered {
    positions: Vec<Position>,
    labels: Vec<u8>,
    offsets: Vec<u32>,
    columns: Vec<u8>,
    values: Vec<f32>,
}

impl Assembler {
    pub fn new(source: Source<'_>, options: Options, context: &Context) -> Result<Self, BatchError> {
        let dataset = source.name.to_owned();
        let failed = |cause: Cause| BatchError { dataset: source.name.to_owned(), cause };
        let manifest = source.manifest;
        let split = source.part.of(manifest);
        let samples = options.plan.count(split, options.shard).map_err(|error| failed(error.into()))?;
        let (kept, rows) = match &options.picks {
            Some(picks) => (picks.kept(split), picks.orders(split, options.plan.epoch)),
            None => (split.clone(), Vec::new()),
        };
        let layout = Layout { label: manifest.labels.map_or(0, Labels::size), features: manifest.features.clone() };
        if let Some(block) = layout.misfit(&kept) {
            let BlockRef { digest, count, bytes } = kept.blocks[block];
            let reason = format!("its {bytes} bytes are not those of {count} samples");
            return Err(failed(Cause::Damaged { block, digest, reason }));
        }
        let reader = Reader {
            transform: Prepared::new(manifest).map_err(|error| failed(error.into()))?,
            layout,
            labels: manifest.labels,
            blocks: source.blocks,
            held: vec![None; split.blocks.len()],
            window_end: 0,
            split: kept,
            rows,
        };
        let end = options.last.batches(samples, options.size);
        let next = options.start.min(end);
        let (context, gathered) = (context.clone(), Gathered::default());
        let split = split.clone();
        Ok(Self { dataset, next, end, options, context, reader, split, shard: None, gathered })
    }

    pub fn context(&self) -> &Context {
        &self.context
    }

    /// How many batches are still to come.
    pub fn remaining(&self) -> u64 {
        self.end - self.next
    }

    pub(super) fn error(&self, cause: impl Into<Cause>) -> BatchError {
        BatchError { dataset: self.dataset.clone(), cause: cause.into() }
    }

    fn assemble(&mut self) -> Result<Batch, Cause> {
        self.context.cancel().check()?;
        if self.shard.is_none() {
            let Options { plan, shard, .. } = &self.options;
            self.shard = Some(plan.shard(&self.split, *shard, |block| self.reader.classes(block))?);
        }
        let Some(shard) = &self.shard else { unreachable!("it was made above") };
        let (reader, gathered, context) = (&mut self.reader, &mut self.gathered, &self.context);
        let size = u64::from(self.options.size.get());
        let start = self.next * size;
        let samples = start..shard.count().min(start + size);
        // A batch has at most 2^32 samples, and one that is larger than memory is refused by the context.
        let count = (samples.end - samples.start) as usize;
        gathered.labels.clear();
        let features = match &reader.layout.features {
            Features::Dense { shape, .. } => {
                let shape: Vec<usize> = std::iter::once(count).chain(shape.iter().copied()).collect();
                let fill = |out: &mut [f32]| reader.dense(context, shard, samples, gathered, out);
                Inputs::Dense(context.tensor_with(&shape, fill)?)
            }
            Features::Sparse { columns } => {
                let width = *columns as usize;
                reader.sparse(context, shard, samples, gathered)?;
                Inputs::Sparse(Box::new(gathered.csr(context, width)?))
            }
        };
        let labels = match reader.labels {
            Some(Labels::Class) => Some(words(context, &[count], &gathered.labels, i32::from_le_bytes)?),
            Some(Labels::Values { width }) => {
                Some(words(context, &[count, width as usize], &gathered.labels, f32::from_le_bytes)?)
            }
            None => None,
        };
        Ok(Batch { features, labels, count })
    }
}

impl Iterator for Assembler {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next == self.end {
            return None;
        }
        let batch = self.assemble();
        match &batch {
            Ok(_) => self.next += 1,
            Err(_) => self.next = self.end,
        }
        if self.next == self.end {
            self.reader.release();
        }
        Some(batch.map_err(|cause| self.error(cause)))
    }
}

impl Gathered {
    fn csr(&self, context: &Context, width: usize) -> Result<Csr, weft_gpu::Error> {
        Ok(Csr {
            offsets: context.tensor(&[self.offsets.len()], &self.offsets)?,
            columns: words(context, &[self.values.len()], &self.columns, u32::from_le_bytes)?,
            values: context.tensor(&[self.values.len()], &self.values)?,
            width,
        })
    }
}

/// A tensor of words that are kept little-endian.
fn words<T: weft_gpu::Element>(
    context: &Context,
    shape: &[usize],
    stored: &[u8],
    decode: impl Fn([u8; 4]) -> T,
) -> Result<Tensor, weft_gpu::Error> {
    context.tensor_with(shape, |out: &mut [T]| {
        for (out, &word) in out.iter_mut().zip(stored.as_chunks().0) {
            *out = decode(word);
        }
        Ok(())
    })
}

/// Has bytes brought to where they can soon be read fast.
#[inline(always)]
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in bytes.chunks(64) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which reads nothing; and the address is that of a byte of the slice.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// How samples lie in a block.
struct Layout {
    /// Bytes of a label.
    label: usize,
    features: Features,
}

impl Layout {
    /// Bytes of a sample's features, if all have as many.
    fn row(&self) -> Option<usize> {
        match &self.features {
            Features::Dense { element, shape } => {
                shape.iter().try_fold(element.size(), |product, &size| product.checked_mul(size))
            }
            Features::Sparse { .. } => None,
        }
    }

    /// The first block that is not as large as its samples.
    fn misfit(&self, split: &Split) -> Option<usize> {
        let sparse = matches!(self.features, Features::Sparse { .. });
        // A sparse row has an entry that says where it starts, and there is one more for the end; then eight bytes a value.
        let (row, more) = if sparse { (Some(4), 4) } else { (self.row(), 0) };
        let each = row.and_then(|row| row.checked_add(self.label)).map(|each| each as u64);
        let fits = |block: &BlockRef| {
            let least = each?.checked_mul(block.count.into())?.checked_add(more)?;
            let rest = block.bytes.checked_sub(least)?;
            (rest == 0 || sparse && rest.is_multiple_of(8)).then_some(())
        };
        split.blocks.iter().position(|block| fits(block).is_none())
    }
}

/// Reads rows of blocks, and holds those blocks whose window is not over.
struct Reader {
    blocks: Arc<dyn Blocks>,
    /// The blocks as they are kept.
    split: Split,
    /// By block the order whose first rows were picked; none, or nothing at all, where all were.
    rows: Vec<Option<Permutation>>,
    layout: Layout,
    labels: Option<Labels>,
    transform: Prepared,
    held: Vec<Option<Bytes>>,
    /// Where in the shard the window ends whose blocks are held.
    window_end: u64,
}

impl Reader {
    /// The classes of a block's samples.
    fn classes(&self, block: usize) -> Result<Vec<i32>, Cause> {
        let reference = &self.split.blocks[block];
        let labels = read_part(&*self.blocks, reference, 0..u64::from(reference.count) * 4);
        let labels = labels.map_err(|error| self.unread(block, error))?;
        Ok(labels.as_chunks().0.iter().map(|&word| i32::from_le_bytes(word)).collect())
    }

    /// Calls `each` with samples of a shard, some at a time, in their order, while their blocks are held.
    fn visit(
        &mut self,
        context: &Context,
        shard: &Shard,
        mut samples: Range<u64>,
        positions: &mut Vec<Position>,
        mut each: impl FnMut(&Self, &[Position]) -> Result<(), Cause>,
    ) -> Result<(), Cause> {
        while samples.start < samples.end {
            if samples.start >= self.window_end {
                self.release();
                self.window_end = shard.window_end(samples.start);
            }
            let end = samples.end.min(self.window_end).min(samples.start + LOOKED_UP);
            positions.clear();
            positions
                .extend((samples.start..end).filter_map(|sample| shard.position(sample)).map(|at| self.kept_at(at)));
            for position in &*positions {
                let block = position.block as usize;
                if self.held[block].is_none() {
                    context.cancel().check()?;
                    let bytes = read_whole(&*self.blocks, &self.split.blocks[block]);
                    self.held[block] = Some(bytes.map_err(|error| self.unread(block, error))?);
                }
            }
            each(self, positions)?;
            samples.start = end;
        }
        Ok(())
    }

    /// Where a sample is in its block as that is kept.
    #[inline]
    fn kept_at(&self, at: Position) -> Position {
        match self.rows.get(at.block as usize) {
            // A place below the block's count has a row below it.
            Some(Some(order)) => Position { row: order.at(at.row.into()) as u32, ..at },
            _ => at,
        }
    }

    fn release(&mut self) {
        self.held.fill(None);
        self.window_end = 0;
    }

    /// Gathers dense samples into `out`, and their labels.
    fn dense(
        &mut self,
        context: &Context,
        shard: &Shard,
        samples: Range<u64>,
        gathered: &mut Gathered,
        out: &mut [f32],
    ) -> Result<(), Cause> {
        let (row, width) = (self.layout.row().unwrap_or(0), self.layout.features.width());
        let mut rest = out;
        let Gathered { positions, labels, .. } = gathered;
        self.visit(context, shard, samples, positions, |reader, positions| {
            let (now, later) = std::mem::take(&mut rest).split_at_mut(positions.len() * width);
            rest = later;
            vectorized(
                #[inline(always)]
                || {
                    for (index, &position) in positions.iter().enumerate() {
                        if let Some(&later) = positions.get(index + PREFETCHED) {
                            prefetch(reader.row(later, row));
                        }
                        let out = &mut now[index * width..(index + 1) * width];
                        reader.transform.row(reader.row(position, row), out);
                    }
                },
            );
            reader.add_labels(positions, labels);
            Ok(())
        })
    }

    /// Gathers sparse samples and their labels.
    fn sparse(
        &mut self,
        context: &Context,
        shard: &Shard,
        samples: Range<u64>,
        gathered: &mut Gathered,
    ) -> Result<(), Cause> {
        let Gathered { positions, labels, offsets, columns, values } = gathered;
        columns.clear();
        values.clear();
        offsets.clear();
        offsets.push(0);
        self.visit(context, shard, samples, positions, |reader, positions| {
            for &position in positions {
                let block = position.block as usize;
                let row = reader.sparse_row(position).ok_or_else(|| {
                    reader.damaged(block, format!("the row of sample {} is not within it", position.row))
                })?;
                columns.extend_from_slice(row.0);
                let before = values.len();
                values.resize(before + row.1.len() / 4, 0.0);
                vectorized(
                    #[inline(always)]
                    || reader.transform.row(row.1, &mut values[before..]),
                );
                let end = u32::try_from(values.len()).map_err(|_| weft_gpu::Error::TooLarge {
                    reason: format!("a batch of {} values; use smaller batches", values.len()),
                })?;
                offsets.push(end);
            }
            reader.add_labels(positions, labels);
            Ok(())
        })
    }

    /// The columns and values of a sparse sample, as they are kept.
    fn sparse_row(&self, position: Position) -> Option<(&[u8], &[u8])> {
        let (bytes, start) = self.features(position);
        let features = bytes.get(start..)?;
        let (starts, rest) =
            features.split_at_checked((self.split.blocks[position.block as usize].count as usize + 1) * 4)?;
        let (columns, values) = rest.split_at(rest.len() / 2);
        let starts = starts.as_chunks().0;
        let at = |row: usize| (u32::from_le_bytes(*starts.get(row)?) as usize).checked_mul(4);
        let range = at(position.row as usize)?..at(position.row as usize + 1)?;
        Some((columns.get(range.clone())?, values.get(range)?))
    }

    /// The features of a dense sample of so many bytes, as they are kept.
    #[inline(always)]
    fn row(&self, position: Position, size: usize) -> &[u8] {
        let (bytes, start) = self.features(position);
        let start = start + position.row as usize * size;
        bytes.get(start..start + size).unwrap_or_default()
    }

    /// The block of a sample, which is held, and where its features start.
    #[inline(always)]
    fn features(&self, position: Position) -> (&[u8], usize) {
        let block = position.block as usize;
        let bytes = self.held[block].as_deref().unwrap_or_default();
        (bytes, self.split.blocks[block].count as usize * self.layout.label)
    }

    fn add_labels(&self, positions: &[Position], labels: &mut Vec<u8>) {
        let size = self.layout.label;
        for position in positions {
            let bytes = self.held[position.block as usize].as_deref().unwrap_or_default();
            let start = position.row as usize * size;
            labels.extend_from_slice(bytes.get(start..start + size).unwrap_or_default());
        }
    }

    fn unread(&self, block: usize, error: std::io::Error) -> Cause {
        Cause::Read { block, digest: self.split.blocks[block].digest, error }
    }

    fn damaged(&self, block: usize, reason: String) -> Cause {
        Cause::Damaged { block, digest: self.split.blocks[block].digest, reason }
    }
}

//! How a product of matrices is cut into tiles: by the kind of the adapter and the sizes alone.

use crate::error::{Error, Result};

/// Sizes past this could overflow when a tile that hangs over the edge is added.
const LARGEST: usize = u32::MAX as usize - 4096;

/// The sizes of `batch` products.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Sizes {
    pub(in super::super) batch: usize,
    pub(in super::super) rows: usize,
    pub(in super::super) columns: usize,
    pub(in super::super) depth: usize,
}

impl Sizes {
    pub(in super::super) fn flops(&self) -> u64 {
        let results = self.batch as u64 * self.rows as u64 * self.columns as u64;
        results.saturating_mul(2 * self.depth as u64)
    }
}

/// `Tiling` in `block.wgsl`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub(in super::super) struct Tiling {
    pub(in super::super) rows: u32,
    pub(in super::super) columns: u32,
    depth: u32,
    slice_depth: u32,
    pub(in super::super) put_rows: u32,
    pub(in super::super) put_columns: u32,
}

/// What a tile is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Tile {
    /// A thread's, in blocks of four by four.
    Registers { down: u32, across: u32 },
    /// A group's, so many rows and columns.
    Workgroup { side: u32 },
}

#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Plan {
    pub(in super::super) tile: Tile,
    pub(in super::super) tiling: Tiling,
    /// Threads or groups.
    pub(in super::super) tiles: u64,
    /// Of the depth, each summed on its own.
    pub(in super::super) slices: usize,
    batch: usize,
}

impl Plan {
    pub(in super::super) fn new(software: bool, sizes: &Sizes, op: &'static str) -> Result<Self> {
        if [sizes.rows, sizes.columns, sizes.depth].iter().any(|&size| size > LARGEST) {
            return Err(Error::TooLarge { reason: format!("`{op}`: {sizes:?}: more than a GPU can count") });
        }
        let tile = if software { register_tile(sizes) } else { workgroup_tile(sizes) };
        let (height, width, step) = match tile {
            Tile::Registers { down, across } => (4 * down as usize, 4 * across as usize, 1),
            Tile::Workgroup { side } => (side as usize, side as usize, 1024 / side as usize),
        };
        let (down, across) = (sizes.rows.div_ceil(height), sizes.columns.div_ceil(width));
        let slice_depth = sizes.depth.div_ceil(slices(software, sizes)).next_multiple_of(step);
        let slices = sizes.depth.div_ceil(slice_depth.max(1)).max(1);
        // A software adapter puts whole tiles where slices are added later.
        let put = if software { [down * height, across * width] } else { [sizes.rows, sizes.columns] };
        let tiling = Tiling {
            rows: sizes.rows as u32,
            columns: sizes.columns as u32,
            depth: sizes.depth as u32,
            slice_depth: slice_depth as u32,
            put_rows: put[0] as u32,
            put_columns: put[1] as u32,
        };
        let tiles = (sizes.batch * slices * down * across) as u64;
        Ok(Self { tile, tiling, tiles, slices, batch: sizes.batch })
    }

    /// Tiles go where the result is to lie, and no further.
    pub(in super::super) fn put_exactly(&mut self) {
        self.tiling.put_rows = self.tiling.rows;
        self.tiling.put_columns = self.tiling.columns;
    }

    /// The elements of all slices where they are put.
    pub(in super::super) fn put_elements(&self) -> usize {
        self.batch * self.slices * self.tiling.put_rows as usize * self.tiling.put_columns as usize
    }
}

/// The tile that is fastest by an estimate: threads run eight at a time on each of a few cores, and whatever hangs over the
/// edge is computed too. There are few of them, since each is a kernel to be compiled.
fn register_tile(sizes: &Sizes) -> Tile {
    const AT_ONCE: usize = 16;
    /// How many products reading an element takes as long as: measured.
    const READ: usize = 20;
    const LARGE_FLOPS: u64 = 1 << 21;
    let slices = slices(true, sizes);
    let cost = |&(down, across): &(usize, usize)| {
        let tiles = sizes.batch * slices * sizes.rows.div_ceil(4 * down) * sizes.columns.div_ceil(4 * across);
        let each = 16 * down * across + READ * 4 * (down + across);
        tiles.div_ceil(AT_ONCE).saturating_mul(each)
    };
    let tiles = [(4, 4), (2, 4), (2, 2), (1, 4), (1, 1)];
    // The largest takes long to compile, too.
    let worth = if sizes.flops() < LARGE_FLOPS { &tiles[1..] } else { &tiles };
    let (down, across) = worth.iter().copied().min_by_key(cost).unwrap_or((1, 1));
    Tile::Registers { down: down as u32, across: across as u32 }
}

/// The large tile reads less per product, the small one keeps more of the GPU busy.
fn workgroup_tile(sizes: &Sizes) -> Tile {
    let large = sizes.batch * sizes.rows.div_ceil(64) * sizes.columns.div_ceil(64);
    Tile::Workgroup { side: if large >= 64 && sizes.rows > 32 && sizes.columns > 32 { 64 } else { 32 } }
}

/// Into how many slices the depth is cut where the tiles alone do not keep the device busy, or a tile would take so long
/// that nobody could stop it. It must not depend on how the factors lie in memory: the result would have other bits.
fn slices(software: bool, sizes: &Sizes) -> usize {
    let (wanted, side, least): (usize, usize, usize) = if software { (32, 16, 128) } else { (256, 32, 256) };
    let longest: usize = if software { 1 << 15 } else { 1 << 20 };
    let tiles = sizes.batch * sizes.rows.div_ceil(side) * sizes.columns.div_ceil(side);
    let busy = (wanted / tiles.max(1)).clamp(1, (sizes.depth / least).max(1));
    busy.max(sizes.depth.div_ceil(longest))
}

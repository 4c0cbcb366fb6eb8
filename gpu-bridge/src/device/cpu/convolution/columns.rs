//! Convolution as a product: the weight times the pixels that each output sees.
//!
//! The pixels are gathered straight into the panels that are multiplied, a cache-sized piece at a time, so no matrix of
//! all of them is ever made. Outputs of the whole batch are counted through, so that small images fill panels too.

use super::Geometry;
use crate::device::cpu::panel::{self, Block, LANES, ROWS};
use crate::error::Result;
use crate::run::{Pace, Parts, Run};

/// Floats of gathered pixels that a tile works on at a time: they share the second-level cache with the weight.
const GATHERED: usize = 48 * 1024;

/// Multiply-adds that are worth a tile of their own.
const SMALL_TILE: usize = 1 << 19;

/// The most pieces that the output channels are cut into where there are few pixels.
const ROW_PIECES: usize = 4;

/// Forward, with the weight packed as panels of rows.
pub(super) fn forward(
    geometry: &Geometry,
    x: &[f32],
    packed: &[f32],
    bias: Option<&[f32]>,
    y: &mut [f32],
    run: &Run<'_>,
) -> Result<()> {
    let depth = geometry.depth();
    let row_panels = geometry.outputs.div_ceil(ROWS);

    let columns = geometry.images * geometry.output_plane();
    let panels = columns.div_ceil(LANES);
    let per_panel = (depth * geometry.outputs * LANES).max(1);
    let fits = (GATHERED / (depth * LANES).max(1)).clamp(1, 64);
    let worth = SMALL_TILE.div_ceil(per_panel);
    // As many panels as make a tile worth while, several gatherings if need be, but no more than leave eight tiles.
    let tile_panels = worth.max(panels / 64).clamp(1, panels);
    let column_tiles = panels.div_ceil(tile_panels);
    let row_pieces =
        (tile_panels * per_panel / SMALL_TILE).min(ROW_PIECES / column_tiles.min(ROW_PIECES)).clamp(1, row_panels);
    let rows_per_piece = row_panels.div_ceil(row_pieces);
    let row_pieces = row_panels.div_ceil(rows_per_piece);
    let gather = fits.min(tile_panels);

    let y = Parts::new(y);
    run.paced_with(geometry.groups * column_tiles * row_pieces, gather * depth * LANES, |pace, tile, gathered| {
        let (group, piece, columns_at) =
            (tile / row_pieces / column_tiles, tile % row_pieces, tile / row_pieces % column_tiles);
        let rows = piece * rows_per_piece..row_panels.min((piece + 1) * rows_per_piece);
        let last = panels.min((columns_at + 1) * tile_panels);
        let mut first = columns_at * tile_panels;
        while first < last {
            let count = gather.min(last - first);
            for (panel, gathered) in gathered.chunks_exact_mut(depth * LANES).take(count).enumerate() {
                gather_panel(geometry, group, x, (first + panel) * LANES, columns, gathered, pace)?;
            }
            for row_panel in rows.clone() {
                let weights = &packed[(group * row_panels + row_panel) * depth * ROWS..][..depth * ROWS];
                for (panel, gathered) in gathered.chunks_exact(depth * LANES).take(count).enumerate() {
                    pace.step(depth * ROWS * LANES)?;
                    let mut block: Block = [[0.0; LANES]; ROWS];
                    panel::multiply(depth, weights, gathered, &mut block);
                    // SAFETY: every output belongs to one group, row and column, and so to one tile.
                    unsafe { store(geometry, group, row_panel, (first + panel) * LANES, columns, &block, bias, &y) };
                }
            }
            first += count;
        }
        Ok(())
    })
}

/// Gathers what [`LANES`] consecutive outputs see, counted from `column`.
fn gather_panel(
    geometry: &Geometry,
    group: usize,
    x: &[f32],
    column: usize,
    columns: usize,
    panel: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    for half in 0..2 {
        let first = column + half * 8;
        if first + 8 <= columns && geometry.stride[1] == 1 && first % geometry.to[1] + 8 <= geometry.to[1] {
            gather_run(geometry, group, x, first, half * 8, panel, pace)?;
        } else {
            gather_lanes(geometry, group, x, (first, columns), half * 8, panel, pace)?;
        }
    }
    Ok(())
}

/// Eight outputs of one row: what they see lies side by side.
fn gather_run(
    geometry: &Geometry,
    group: usize,
    x: &[f32],
    column: usize,
    lane: usize,
    panel: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Geometry { inputs, groups, from, kernel, .. } = *geometry;
    let (image, pixel) = (column / geometry.output_plane(), column % geometry.output_plane());
    let (row, across) = (pixel / geometry.to[1], pixel % geometry.to[1]);
    let (plane, taps) = (geometry.input_plane(), geometry.taps());
    let base = (image * groups + group) * inputs * plane;
    for down in 0..kernel[0] {
        let source_row = geometry.source(0, row, down);
        pace.step(8 * kernel[1] * inputs)?;
        for over in 0..kernel[1] {
            let tap = down * kernel[1] + over;
            let start = across + over * geometry.dilation[1];
            let inside = start >= geometry.padding[1] && start - geometry.padding[1] + 8 <= from[1];
            for input in 0..inputs {
                let into = &mut panel[(input * taps + tap) * LANES + lane..][..8];
                match source_row {
                    None => into.fill(0.0),
                    Some(source_row) if inside => {
                        let at = base + input * plane + source_row * from[1] + start - geometry.padding[1];
                        into.copy_from_slice(&x[at..at + 8]);
                    }
                    Some(source_row) => {
                        let line = &x[base + input * plane + source_row * from[1]..][..from[1]];
                        for (offset, into) in into.iter_mut().enumerate() {
                            let source = (start + offset).checked_sub(geometry.padding[1]);
                            *into = source.and_then(|source| line.get(source)).copied().unwrap_or(0.0);
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

/// Eight outputs anywhere, perhaps of several rows or images; those past the end see zeros.
fn gather_lanes(
    geometry: &Geometry,
    group: usize,
    x: &[f32],
    (column, columns): (usize, usize),
    lane: usize,
    panel: &mut [f32],
    pace: &mut Pace<'_>,
) -> Result<()> {
    let Geometry { inputs, groups, from, to, kernel, .. } = *geometry;
    let (plane, taps) = (geometry.input_plane(), geometry.taps());
    let pixels: [Option<(usize, usize, usize)>; 8] = std::array::from_fn(|offset| {
        let column = column + offset;
        let pixel = column % geometry.output_plane();
        let base = (column / geometry.output_plane() * groups + group) * inputs * plane;
        (column < columns).then_some((base, pixel / to[1], pixel % to[1]))
    });
    for down in 0..kernel[0] {
        pace.step(8 * kernel[1] * inputs)?;
        for over in 0..kernel[1] {
            let tap = down * kernel[1] + over;
            let sources: [Option<usize>; 8] = pixels.map(|pixel| {
                let (base, row, across) = pixel?;
                Some(base + geometry.source(0, row, down)? * from[1] + geometry.source(1, across, over)?)
            });
            let into = panel.chunks_exact_mut(LANES).skip(tap).step_by(taps);
            if sources.iter().all(Option::is_some) {
                let sources = sources.map(Option::unwrap_or_default);
                for (input, into) in into.enumerate() {
                    let x = &x[input * plane..];
                    into[lane..lane + 8].iter_mut().zip(sources).for_each(|(into, source)| *into = x[source]);
                }
            } else {
                for (input, into) in into.enumerate() {
                    let x = &x[input * plane..];
                    for (into, source) in into[lane..lane + 8].iter_mut().zip(sources) {
                        *into = source.map_or(0.0, |source| x[source]);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Puts a block of outputs where they belong.
///
/// # Safety
/// Nobody else writes these outputs.
#[expect(clippy::too_many_arguments, reason = "they say where the block belongs")]
pub(super) unsafe fn store(
    geometry: &Geometry,
    group: usize,
    row_panel: usize,
    column: usize,
    columns: usize,
    block: &Block,
    bias: Option<&[f32]>,
    y: &Parts<'_, f32>,
) {
    let plane = geometry.output_plane();
    let first = row_panel * ROWS;
    for (output, values) in (first..geometry.outputs.min(first + ROWS)).zip(block) {
        let channel = group * geometry.outputs + output;
        let shift = bias.map_or(0.0, |bias| bias[channel]);
        let channels = geometry.groups * geometry.outputs;
        let mut lane = 0;
        while lane < LANES && column + lane < columns {
            let (image, pixel) = ((column + lane) / plane, (column + lane) % plane);
            let count = (LANES - lane).min(plane - pixel).min(columns - column - lane);
            let at = (image * channels + channel) * plane + pixel;
            // SAFETY: by the contract.
            let into = unsafe { y.part(at..at + count) };
            into.iter_mut().zip(&values[lane..]).for_each(|(into, value)| *into = value + shift);
            lane += count;
        }
    }
}

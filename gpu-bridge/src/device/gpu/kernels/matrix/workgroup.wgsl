// A product of matrices for GPUs: a group of 64 threads computes a square of the result, $SIDE on a side. The factors pass
// through workgroup memory in steps of the depth, a block of four by four of each per thread; every thread keeps eight by
// eight (or four by four) of the result in registers.
//
// What the factors are is said by `enter` and `bring`, where the result goes by `store`.

// `left[k][row]`, `right[k][column]`.
struct Brought { left: mat4x4<f32>, right: mat4x4<f32> }

const FOURS: u32 = $SIDE / 4u;
const STEP: u32 = 1024u / $SIDE;
// Fours of the result's rows, and of its columns, that a thread has.
const OWN: u32 = $SIDE / 32u;

var<workgroup> left_tile: array<vec4<f32>, 256>;
var<workgroup> right_tile: array<vec4<f32>, 256>;

// Which block of a factor a thread brings: its place along the side, and along the depth. Neighbours bring what lies side
// by side in memory.
fn brought_by(lane: u32, depth_first: bool) -> vec2<u32> {
    const ALONG: u32 = STEP / 4u;
    if (depth_first) { return vec2<u32>(lane / ALONG, lane % ALONG); }
    return vec2<u32>(lane % FOURS, lane / FOURS);
}

// Zeros past the end of the depth. What is there is chosen, not multiplied: it may be anything.
fn ended(block: mat4x4<f32>, depth: u32, end: u32) -> mat4x4<f32> {
    let zero = vec4<f32>();
    return mat4x4<f32>(
        select(zero, block[0], depth < end),
        select(zero, block[1], depth + 1u < end),
        select(zero, block[2], depth + 2u < end),
        select(zero, block[3], depth + 3u < end),
    );
}

fn store_block(row: u32, column: u32, others: u32, sum: mat4x4<f32>) {
    for (var i = 0u; i < 4u; i++) {
        if (row + i < parameters.body.tiling.rows) { store(row + i, column, others, sum[i]); }
    }
}

fn run(group: u32, lane: u32) {
    let tiling = parameters.body.tiling;
    let tiles_down = pieces(tiling.put_rows, $SIDE);
    let tiles_across = pieces(tiling.put_columns, $SIDE);
    let rest = group / tiles_across;
    let column = (group - rest * tiles_across) * $SIDE;
    let others = rest / tiles_down;
    let row = (rest - others * tiles_down) * $SIDE;
    let batch = others / slices();
    let slice = others - batch * slices();
    let start = slice * tiling.slice_depth;
    let end = min(start + tiling.slice_depth, tiling.depth);

    let left = brought_by(lane, $LEFT_DEPTH_FIRST);
    let right = brought_by(lane, $RIGHT_DEPTH_FIRST);
    let own_row = lane / 8u * OWN;
    let own_column = lane % 8u * OWN;

    enter(batch);
    begin(row + left.x * 4u, column + right.x * 4u, start + right.y * 4u);
    var a: mat4x4<f32>;
    var b: mat4x4<f32>;
    var c: mat4x4<f32>;
    var d: mat4x4<f32>;
    for (var depth = start; depth < end; depth += STEP) {
        let blocks = bring(depth + left.y * 4u, depth + right.y * 4u, end);
        workgroupBarrier();
        for (var k = 0u; k < 4u; k++) {
            left_tile[(left.y * 4u + k) * FOURS + left.x] = blocks.left[k];
            right_tile[(right.y * 4u + k) * FOURS + right.x] = blocks.right[k];
        }
        workgroupBarrier();
        for (var k = 0u; k < STEP; k++) {
            let left_first = left_tile[k * FOURS + own_row];
            let right_first = right_tile[k * FOURS + own_column];
            a = outer(left_first, right_first, a);
            if (OWN > 1u) {
                let left_second = left_tile[k * FOURS + own_row + 1u];
                let right_second = right_tile[k * FOURS + own_column + 1u];
                b = outer(left_first, right_second, b);
                c = outer(left_second, right_first, c);
                d = outer(left_second, right_second, d);
            }
        }
    }
    let put_row = row + own_row * 4u;
    let put_column = column + own_column * 4u;
    store_block(put_row, put_column, others, a);
    if (OWN > 1u) {
        store_block(put_row, put_column + 4u, others, b);
        store_block(put_row + 4u, put_column, others, c);
        store_block(put_row + 4u, put_column + 4u, others, d);
    }
}

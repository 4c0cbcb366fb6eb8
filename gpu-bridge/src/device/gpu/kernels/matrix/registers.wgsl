// A product of matrices for adapters that run on the machine's cores: every thread keeps a tile of the result in
// registers, $DOWN by $ACROSS blocks of four by four, and reads straight from memory. Reading an element costs as much as
// twenty products there, whether alone or in fours, so the tile is large; and every place in the text that reads or
// writes costs compile time, so edges are left to a second kernel.
//
// What the factors are is said by `enter`, `set_rows`, `set_columns`, `set_depth`, `next_depth`, `left_four`, `right_four`;
// what becomes of a sum by `scaled`.

// Blocks side by side.
struct Band { a: mat4x4<f32>, b: mat4x4<f32>, c: mat4x4<f32>, d: mat4x4<f32> }

struct Fours { a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32> }

fn multiply(left: vec4<f32>, right: Fours, sum: Band) -> Band {
    var next = sum;
    next.a = outer(left, right.a, sum.a);
    if ($ACROSS > 1u) { next.b = outer(left, right.b, sum.b); }
    if ($ACROSS > 2u) {
        next.c = outer(left, right.c, sum.c);
        next.d = outer(left, right.d, sum.d);
    }
    return next;
}

fn put_block(row: u32, four: u32, sum: mat4x4<f32>) {
    let tiling = parameters.body.tiling;
    let fours = tiling.put_columns / 4u;
    if (four >= fours) { return; }
    let first = put_start + row * fours + four;
    if (row < tiling.put_rows) { y_put4(first, scaled(sum[0])); }
    if (row + 1u < tiling.put_rows) { y_put4(first + fours, scaled(sum[1])); }
    if (row + 2u < tiling.put_rows) { y_put4(first + 2u * fours, scaled(sum[2])); }
    if (row + 3u < tiling.put_rows) { y_put4(first + 3u * fours, scaled(sum[3])); }
}

fn put_band(row: u32, four: u32, sum: Band) {
    put_block(row, four, sum.a);
    if ($ACROSS > 1u) { put_block(row, four + 1u, sum.b); }
    if ($ACROSS > 2u) {
        put_block(row, four + 2u, sum.c);
        put_block(row, four + 3u, sum.d);
    }
}

var<private> put_start: u32;

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let tiling = parameters.body.tiling;
    let tiles_down = pieces(tiling.put_rows, 4u * $DOWN);
    let tiles_across = pieces(tiling.put_columns, 4u * $ACROSS);
    let rest = thread / tiles_across;
    let column = (thread - rest * tiles_across) * 4u * $ACROSS;
    let others = rest / tiles_down;
    let row = (rest - others * tiles_down) * 4u * $DOWN;
    let batch = others / slices();
    let slice = others - batch * slices();
    let start = slice * tiling.slice_depth;
    let end = min(start + tiling.slice_depth, tiling.depth);
    put_start = others * tiling.put_rows * (tiling.put_columns / 4u);

    enter(batch);
    set_rows(0u, row);
    set_columns(0u, column);
    if ($DOWN > 1u) { set_rows(1u, row + 4u); }
    if ($DOWN > 2u) {
        set_rows(2u, row + 8u);
        set_rows(3u, row + 12u);
    }
    if ($ACROSS > 1u) { set_columns(1u, column + 4u); }
    if ($ACROSS > 2u) {
        set_columns(2u, column + 8u);
        set_columns(3u, column + 12u);
    }
    set_depth(start);
    var first: Band;
    var second: Band;
    var third: Band;
    var fourth: Band;
    for (var depth = start; depth < end; depth++) {
        var right: Fours;
        right.a = right_four(0u);
        if ($ACROSS > 1u) { right.b = right_four(1u); }
        if ($ACROSS > 2u) {
            right.c = right_four(2u);
            right.d = right_four(3u);
        }
        first = multiply(left_four(0u), right, first);
        if ($DOWN > 1u) { second = multiply(left_four(1u), right, second); }
        if ($DOWN > 2u) {
            third = multiply(left_four(2u), right, third);
            fourth = multiply(left_four(3u), right, fourth);
        }
        next_depth();
    }
    put_band(row, column / 4u, first);
    if ($DOWN > 1u) { put_band(row + 4u, column / 4u, second); }
    if ($DOWN > 2u) {
        put_band(row + 8u, column / 4u, third);
        put_band(row + 12u, column / 4u, fourth);
    }
}

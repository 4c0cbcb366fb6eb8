// The factors of `dense.wgsl`, a block of four by four at a time, read by fours where they lie so.

var<private> left_row: u32;
var<private> right_column: u32;

fn begin(row: u32, column: u32, depth: u32) {
    left_row = row;
    right_column = column;
}

// Four elements from `first` on along an axis of `size`, `step` apart, repeating the last ones past the end.
fn left_four(start: u32, first: u32, size: u32, step: u32) -> vec4<f32> {
    return $LEFT_FOUR;
}

fn right_four(start: u32, first: u32, size: u32, step: u32) -> vec4<f32> {
    return $RIGHT_FOUR;
}

fn left_block(row: u32, depth: u32) -> mat4x4<f32> {
    let strides = parameters.body.left_strides;
    let rows = parameters.body.tiling.rows;
    let depths = parameters.body.tiling.depth;
    if ($LEFT_DEPTH_FIRST) {
        let each = left_start + min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(rows - 1u)) * strides[0];
        return transpose(mat4x4<f32>(
            left_four(each.x, depth, depths, strides[1]),
            left_four(each.y, depth, depths, strides[1]),
            left_four(each.z, depth, depths, strides[1]),
            left_four(each.w, depth, depths, strides[1]),
        ));
    }
    let each = left_start + min(vec4<u32>(depth) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(depths - 1u)) * strides[1];
    return mat4x4<f32>(
        left_four(each.x, row, rows, strides[0]),
        left_four(each.y, row, rows, strides[0]),
        left_four(each.z, row, rows, strides[0]),
        left_four(each.w, row, rows, strides[0]),
    );
}

fn right_block(column: u32, depth: u32) -> mat4x4<f32> {
    let strides = parameters.body.right_strides;
    let columns = parameters.body.tiling.columns;
    let depths = parameters.body.tiling.depth;
    if ($RIGHT_DEPTH_FIRST) {
        let each = right_start + min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(columns - 1u)) * strides[1];
        return transpose(mat4x4<f32>(
            right_four(each.x, depth, depths, strides[0]),
            right_four(each.y, depth, depths, strides[0]),
            right_four(each.z, depth, depths, strides[0]),
            right_four(each.w, depth, depths, strides[0]),
        ));
    }
    let each = right_start + min(vec4<u32>(depth) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(depths - 1u)) * strides[0];
    return mat4x4<f32>(
        right_four(each.x, column, columns, strides[1]),
        right_four(each.y, column, columns, strides[1]),
        right_four(each.z, column, columns, strides[1]),
        right_four(each.w, column, columns, strides[1]),
    );
}

fn bring(left_depth: u32, right_depth: u32, end: u32) -> Brought {
    return Brought(
        ended(left_block(left_row, left_depth), left_depth, end),
        ended(right_block(right_column, right_depth), right_depth, end),
    );
}

fn put(first: u32, count: u32, values: vec4<f32>) {
    $PUT
}

// For the gradient of some activations.
fn put_before(first: u32, count: u32, values: vec4<f32>) {
    $PUT_BEFORE
}

// The result, row after row; with slices, the sums of each slice, to be added later.
fn store(row: u32, column: u32, others: u32, sum: vec4<f32>) {
    let tiling = parameters.body.tiling;
    if (column >= tiling.columns) { return; }
    let first = (others * tiling.rows + row) * tiling.columns + column;
    let count = tiling.columns - column;
    if ($SLICED) {
        put(first, count, sum);
        return;
    }
    let last = tiling.columns - 1u;
    let before = vec4<f32>(
        finished(sum.x, column),
        finished(sum.y, min(column + 1u, last)),
        finished(sum.z, min(column + 2u, last)),
        finished(sum.w, min(column + 3u, last)),
    );
    put_before(first, count, before);
    put(first, count, vec4<f32>(activated(before.x), activated(before.y), activated(before.z), activated(before.w)));
}

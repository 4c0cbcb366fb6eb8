// The factors of `sampled.wgsl` for a group of threads, each of which brings a block of four by four of both.

struct Put {
    // The digits of the steps that other threads make at once.
    jump: array<u32, 3>,
    group: u32,
    offset: u32,
    row: u32,
    units: array<u32, 3>,
}

fn begin(row: u32, column: u32, depth: u32) {
    set_rows(0u, row);
    set_columns(0u, column);
    set_depth(depth);
}

fn bring(left_depth: u32, right_depth: u32, end: u32) -> Brought {
    var blocks: Brought;
    for (var k = 0u; k < 4u; k++) {
        inside = right_depth + k < end;
        blocks.left[k] = left_four(0u);
        blocks.right[k] = right_four(0u);
        next_depth();
    }
    let jump = parameters.body.put.jump;
    advance(vec3<u32>(jump[0], jump[1], jump[2]));
    look_up();
    return Brought(ended(blocks.left, right_depth, end), blocks.right);
}

// Where a column of the result goes.
fn put_place(column: u32) -> u32 {
    let body = parameters.body;
    let rest = column / body.column_sizes[1];
    let first = rest / body.column_sizes[0];
    let second = rest - first * body.column_sizes[0];
    let third = column - rest * body.column_sizes[1];
    return first * body.put.units[0] + second * body.put.units[1] + third * body.put.units[2];
}

fn store(row: u32, column: u32, others: u32, sum: vec4<f32>) {
    let body = parameters.body;
    let start = group_index * body.put.group + body.put.offset + row * body.put.row;
    let channel = group_index * body.tiling.rows + row;
    for (var i = 0u; i < 4u; i++) {
        if (column + i < body.tiling.columns) {
            if ($SLICED) {
                y_put((others * body.tiling.rows + row) * body.tiling.columns + column + i, sum[i]);
            } else {
                let value = sum[i];
                y_put(start + put_place(column + i), $BIASED);
            }
        }
    }
}

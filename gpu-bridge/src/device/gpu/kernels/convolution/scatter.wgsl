// The sums of a convolution, slices added in order, each to its place in the result. A slice has room for whole tiles.

struct Body {
    rows: u32,
    columns: u32,
    slices: u32,
    sums_rows: u32,
    sums_columns: u32,
    column_sizes: array<u32, 2>,
    put_group: u32,
    put_offset: u32,
    put_row: u32,
    put_units: array<u32, 3>,
}

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let body = parameters.body;
    let channel = thread / body.columns;
    let column = thread - channel * body.columns;
    let part = channel / body.rows;
    let row = channel - part * body.rows;
    let each = body.sums_rows * body.sums_columns;
    var place = part * body.slices * each + row * body.sums_columns + column;
    var value = sums_at(place);
    for (var slice = 1u; slice < body.slices; slice++) {
        place += each;
        value += sums_at(place);
    }
    let rest = column / body.column_sizes[1];
    let first = rest / body.column_sizes[0];
    let second = rest - first * body.column_sizes[0];
    let third = column - rest * body.column_sizes[1];
    let start = part * body.put_group + body.put_offset + row * body.put_row;
    y_put(start + first * body.put_units[0] + second * body.put_units[1] + third * body.put_units[2], $BIASED);
}

// One of the tensors that are joined, to its place.

struct Body { piece: u32, row: u32, start: u32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let outer = i / parameters.body.piece;
    let at = i - outer * parameters.body.piece;
    y_put(outer * parameters.body.row + parameters.body.start + at, x_of(i));
}

// One of the tensors that are joined, to its place, where a word holds several elements.

struct Body { piece: u32, row: u32, start: u32 }

fn value(i: u32) -> $TYPE {
    let outer = i / parameters.body.row;
    let at = i - outer * parameters.body.row - parameters.body.start;
    // Before the start it wraps around.
    if (at >= parameters.body.piece) { return y_at(i); }
    return x_of(outer * parameters.body.piece + at);
}

// Elements apart from each other, and a value around and between them.

struct Body {
    rank: u32,
    value: u32,
    sizes: array<u32, 8>,
    before: array<u32, 8>,
    steps: array<u32, 8>,
    x_sizes: array<u32, 8>,
    x_strides: array<u32, 8>,
}

fn value(i: u32) -> $TYPE {
    var rest = i;
    var place = 0u;
    for (var left = parameters.body.rank; left > 0u; left--) {
        let axis = left - 1u;
        let size = parameters.body.sizes[axis];
        let next = rest / size;
        let coordinate = rest - next * size;
        rest = next;
        let before = parameters.body.before[axis];
        let step = parameters.body.steps[axis];
        let at = (coordinate - before) / step;
        if (coordinate < before || at * step != coordinate - before || at >= parameters.body.x_sizes[axis]) {
            return bitcast<$TYPE>(parameters.body.value);
        }
        place += at * parameters.body.x_strides[axis];
    }
    return x_at(place);
}

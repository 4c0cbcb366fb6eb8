// What an element gets from those that came from it along one axis, in order.

struct Body { large: u32, small: u32, inner: u32 }

// The first element of the axis that comes from `least` or a later one.
fn first_from(least: u32) -> u32 {
    var low = 0u;
    var high = parameters.body.large;
    while (low < high) {
        let middle = low + (high - low) / 2u;
        if (nearer_at(middle) < least) { low = middle + 1u; } else { high = middle; }
    }
    return low;
}

fn value(i: u32) -> f32 {
    let inner = parameters.body.inner;
    let line = i / inner;
    let outer = line / parameters.body.small;
    let at = line - outer * parameters.body.small;
    let start = outer * parameters.body.large * inner + (i - line * inner);
    let last = parameters.body.small - 1u;
    let end = first_from(at + 1u);
    var sum = 0.0;
    for (var from_line = first_from(max(at, 1u) - 1u); from_line < end; from_line++) {
        let near = nearer_at(from_line);
        let weight = weights_at(from_line);
        var share = 0.0;
        if (near == at) { share = 1.0 - weight; }
        if (min(near + 1u, last) == at) { share += weight; }
        if (share != 0.0) { sum += share * dy_at(start + from_line * inner); }
    }
    return sum;
}

// An element gets what the windows have whose largest it is.

fn value(i: u32) -> f32 {
    let row = i / parameters.body.sizes[1];
    let plane = row / parameters.body.sizes[0];
    let down = row - plane * parameters.body.sizes[0];
    let across = i - row * parameters.body.sizes[1];
    let own = down * parameters.body.sizes[1] + across;
    let rows = reached(0u, down);
    let columns = reached(1u, across);
    let width = parameters.body.pooled[1];
    let start = plane * parameters.body.pooled[0] * width;
    var sum = 0.0;
    for (var y = rows.x; y < rows.y; y++) {
        for (var x = columns.x; x < columns.y; x++) {
            let at = start + y * width + x;
            if (largest_at(at) == own) { sum += dy_at(at); }
        }
    }
    return sum;
}

// An element gets its share of every window that covers it.

fn value(i: u32) -> f32 {
    let row = i / parameters.body.sizes[1];
    let plane = row / parameters.body.sizes[0];
    let rows = reached(0u, row - plane * parameters.body.sizes[0]);
    let columns = reached(1u, i - row * parameters.body.sizes[1]);
    let width = parameters.body.pooled[1];
    let start = plane * parameters.body.pooled[0] * width;
    var sum = 0.0;
    for (var y = rows.x; y < rows.y; y++) {
        let counted = f32(covered(0u, y).z);
        for (var x = columns.x; x < columns.y; x++) {
            sum += dy_at(start + y * width + x) / (counted * f32(covered(1u, x).z));
        }
    }
    return sum;
}

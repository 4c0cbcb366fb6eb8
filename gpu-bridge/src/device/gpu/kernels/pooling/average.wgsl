// The mean of each window.

fn value(i: u32) -> f32 {
    let row = i / parameters.body.pooled[1];
    let plane = row / parameters.body.pooled[0];
    let rows = covered(0u, row - plane * parameters.body.pooled[0]);
    let columns = covered(1u, i - row * parameters.body.pooled[1]);
    let width = parameters.body.sizes[1];
    let start = plane * parameters.body.sizes[0] * width;
    // Row by row, so that rounding stays small.
    var sum = 0.0;
    for (var y = rows.x; y < rows.y; y++) {
        var along = 0.0;
        for (var x = columns.x; x < columns.y; x++) {
            along += x_at(start + y * width + x);
        }
        sum += along;
    }
    return sum / (f32(rows.z) * f32(columns.z));
}

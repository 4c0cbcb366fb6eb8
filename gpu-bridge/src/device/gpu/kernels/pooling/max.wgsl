// The largest of each window. A NaN is the largest.

fn value(i: u32) -> f32 {
    let row = i / parameters.body.pooled[1];
    let plane = row / parameters.body.pooled[0];
    let rows = covered(0u, row - plane * parameters.body.pooled[0]);
    let columns = covered(1u, i - row * parameters.body.pooled[1]);
    let width = parameters.body.sizes[1];
    let start = plane * parameters.body.sizes[0] * width;
    var most = -infinity();
    for (var y = rows.x; y < rows.y; y++) {
        for (var x = columns.x; x < columns.y; x++) {
            most = larger(most, x_at(start + y * width + x));
        }
    }
    return most;
}

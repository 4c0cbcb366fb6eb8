// The mean of each window.

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let at = located(i, body.pooled[0], body.pooled[1]);
    let rows = covered(0u, at.y);
    let columns = covered(1u, at.z);
    let start = at.x * body.sizes[0] * body.sizes[1];
    var sum = 0.0;
    for (var row = rows.start; row < rows.end; row++) {
        var row_sum = 0.0;
        for (var column = columns.start; column < columns.end; column++) {
            row_sum += x_at(start + row * body.sizes[1] + column);
        }
        sum += row_sum;
    }
    return sum / (f32(rows.count) * f32(columns.count));
}

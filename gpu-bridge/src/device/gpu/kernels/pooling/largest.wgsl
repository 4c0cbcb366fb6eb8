// Where the largest of each window lies in its plane: the first of equals, the last NaN.

fn value(i: u32) -> u32 {
    let row = i / parameters.body.pooled[1];
    let plane = row / parameters.body.pooled[0];
    let rows = covered(0u, row - plane * parameters.body.pooled[0]);
    let columns = covered(1u, i - row * parameters.body.pooled[1]);
    let width = parameters.body.sizes[1];
    let start = plane * parameters.body.sizes[0] * width;
    var most = -infinity();
    var place = rows.x * width + columns.x;
    for (var y = rows.x; y < rows.y; y++) {
        for (var x = columns.x; x < columns.y; x++) {
            let at = y * width + x;
            let element = x_at(start + at);
            if (is_nan(element) || (!is_nan(most) && element > most)) {
                most = element;
                place = at;
            }
        }
    }
    return place;
}

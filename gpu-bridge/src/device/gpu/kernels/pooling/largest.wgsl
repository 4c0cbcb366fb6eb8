// The largest of each window, or where it lies: the first of equals, the last NaN.

fn value(i: u32) -> $TYPE {
    let body = parameters.body;
    let at = located(i, body.pooled[0], body.pooled[1]);
    let rows = covered(0u, at.y);
    let columns = covered(1u, at.z);
    let start = at.x * body.sizes[0] * body.sizes[1];
    var position = start + rows.start * body.sizes[1] + columns.start;
    var most = -infinity();
    for (var row = rows.start; row < rows.end; row++) {
        for (var column = columns.start; column < columns.end; column++) {
            let here = start + row * body.sizes[1] + column;
            let x = x_at(here);
            if (is_nan(x) || (!is_nan(most) && x > most)) {
                most = x;
                position = here;
            }
        }
    }
    return $RESULT;
}

// What an element of the input gets from the windows that cover it, in their order.

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let at = located(i, body.sizes[0], body.sizes[1]);
    let rows = covering(0u, at.y);
    let columns = covering(1u, at.z);
    let start = at.x * body.pooled[0] * body.pooled[1];
    var sum = 0.0;
    for (var row = rows.x; row < rows.y; row++) {
        for (var column = columns.x; column < columns.y; column++) {
            let window = start + row * body.pooled[1] + column;
            $ADD
        }
    }
    return sum;
}

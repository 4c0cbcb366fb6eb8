// Each pixel from the two to four that it lies between. A weight of 0 leaves a pixel out, whatever it holds.

struct Body { height: u32, width: u32, to_height: u32, to_width: u32 }

fn mix_pixels(a: f32, b: f32, weight: f32) -> f32 {
    if (weight == 0.0) { return a; }
    return (1.0 - weight) * a + weight * b;
}

// A pixel of a column, between two rows.
fn down(upper: u32, lower: u32, column: u32, weight: f32) -> f32 {
    if (weight == 0.0) { return x_at(upper + column); }
    return mix_pixels(x_at(upper + column), x_at(lower + column), weight);
}

fn value(i: u32) -> f32 {
    let line = i / parameters.body.to_width;
    let plane = line / parameters.body.to_height;
    let to_column = i - line * parameters.body.to_width;
    let to_row = line - plane * parameters.body.to_height;
    let width = parameters.body.width;
    let row = rows_at(to_row);
    let row_weight = row_weights_at(to_row);
    let start = plane * parameters.body.height * width;
    let upper = start + row * width;
    let lower = start + min(row + 1u, parameters.body.height - 1u) * width;
    let column = columns_at(to_column);
    let weight = column_weights_at(to_column);
    let left = down(upper, lower, column, row_weight);
    if (weight == 0.0) { return left; }
    return mix_pixels(left, down(upper, lower, min(column + 1u, width - 1u), row_weight), weight);
}

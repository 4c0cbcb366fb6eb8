// Adds the sums of the slices of products, in order, and finishes them. Each slice has room for whole tiles.

struct Body { rows: u32, columns: u32, slices: u32, put_rows: u32, put_columns: u32, scale: f32, a: f32, b: f32 }

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let rows = i / body.columns;
    let column = i - rows * body.columns;
    let batch = rows / body.rows;
    let row = rows - batch * body.rows;
    let each = body.put_rows * body.put_columns;
    var place = batch * body.slices * each + row * body.put_columns + column;
    var sum = part_at(place);
    for (var slice = 1u; slice < body.slices; slice++) {
        place += each;
        sum += part_at(place);
    }
    let before = finished(sum, column);
    $PUT_BEFORE
    return activated(before);
}

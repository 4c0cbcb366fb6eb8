// Rows of a table, by index.

struct Body { count: u32, width: u32 }

fn value(i: u32) -> $TYPE {
    let row = i / parameters.body.width;
    let found = index_index(row);
    if (found >= parameters.body.count) {
        out_of_range(found);
        return $TYPE();
    }
    return table_at(found * parameters.body.width + (i - row * parameters.body.width));
}

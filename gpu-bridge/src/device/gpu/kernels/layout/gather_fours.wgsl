// Rows of a table, by index, four elements at a time.

struct Body { count: u32, width: u32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let row = i / parameters.body.width;
    let found = index_index(row);
    if (found >= parameters.body.count) {
        out_of_range(found);
        return;
    }
    y_put4(i, table_at4(found * parameters.body.width + (i - row * parameters.body.width)));
}

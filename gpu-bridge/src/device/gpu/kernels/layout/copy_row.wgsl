// What lies in a row on both sides, four at a time.

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i < parameters.count) {
        y_put4(i, x_at4(i));
    }
}

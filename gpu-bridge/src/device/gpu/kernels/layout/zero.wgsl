// Zero everywhere.

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i < parameters.count) {
        $PUT(i, $TYPE());
    }
}

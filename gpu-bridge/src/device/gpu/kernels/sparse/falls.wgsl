// Whether no offset is less than the one before.

fn run(group: u32, lane: u32) {
    let row = group * $LANES + lane;
    if (row < parameters.count && offsets_at(row) > offsets_at(row + 1u)) {
        out_of_range(row);
        wrong_put(0u, 1u);
    }
}

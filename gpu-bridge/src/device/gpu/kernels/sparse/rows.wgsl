// The row of each stored value.

fn value(i: u32) -> u32 {
    return row_of(i);
}

// Every element as it is.

fn value(i: u32) -> $TYPE {
    return x_of(i);
}

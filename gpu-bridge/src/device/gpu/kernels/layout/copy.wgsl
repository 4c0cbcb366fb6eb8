// Every element as it is.

fn value(i: u32) -> $TYPE {
    return x_$AT(i);
}

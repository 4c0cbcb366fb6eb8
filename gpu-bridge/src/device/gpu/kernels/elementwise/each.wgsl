// Every element by itself.

fn value(i: u32) -> f32 {
    return apply($OPERANDS);
}

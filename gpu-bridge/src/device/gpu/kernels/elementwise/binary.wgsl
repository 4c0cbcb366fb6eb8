// A function of two elements.

fn value(i: u32) -> f32 {
    let a = a_of(i);
    let b = b_of(i);
    return $FUNCTION;
}

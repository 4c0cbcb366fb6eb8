// Two numbers compared.

// Numbers in order, both zeros the same. Floats are compared as integers, since a GPU may take small ones for zero.
fn order(x: f32) -> i32 {
    let bits = bitcast<i32>(x);
    return select(bits, -(bits & 0x7fffffff), bits < 0);
}

fn compare_f32(a: f32, b: f32) -> bool {
    if (is_nan(a) || is_nan(b)) { return $NAN; }
    return order(a) $SIGN order(b);
}

fn compare_i32(a: i32, b: i32) -> bool { return a $SIGN b; }

fn compare_u32(a: u32, b: u32) -> bool { return a $SIGN b; }

fn value(i: u32) -> u32 {
    return select(0u, 1u, compare_$TYPE(a_of(i), b_of(i)));
}

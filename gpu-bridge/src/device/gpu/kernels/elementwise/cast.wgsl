// One type from another: truncated, kept within range, and NaN as 0.

fn f32_to_f32(x: f32) -> f32 { return x; }

fn f32_to_i32(x: f32) -> i32 {
    if (is_nan(x)) { return 0; }
    if (x >= 2147483648.0) { return 2147483647; }
    // The lowest of all is exact as a float, and what is below it becomes it.
    return i32(max(x, -2147483648.0));
}

fn f32_to_u32(x: f32) -> u32 {
    if (is_nan(x) || is_negative(x)) { return 0u; }
    if (x >= 4294967296.0) { return 4294967295u; }
    return u32(x);
}

fn i32_to_f32(x: i32) -> f32 { return f32(x); }

fn i32_to_i32(x: i32) -> i32 { return x; }

fn i32_to_u32(x: i32) -> u32 { return u32(max(x, 0)); }

fn u32_to_f32(x: u32) -> f32 { return f32(x); }

fn u32_to_i32(x: u32) -> i32 { return i32(min(x, 2147483647u)); }

fn u32_to_u32(x: u32) -> u32 { return x; }

fn value(i: u32) -> $TO {
    let x = $FROM_to_$TO(x_of(i));
    return $KEPT;
}

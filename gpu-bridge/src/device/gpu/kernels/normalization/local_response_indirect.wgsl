// How an element's divisor moves the loss.

fn value(i: u32) -> f32 {
    let base = divisor(i, channel_of(i));
    return dy_at(i) * power(base) * x_at(i) / base;
}

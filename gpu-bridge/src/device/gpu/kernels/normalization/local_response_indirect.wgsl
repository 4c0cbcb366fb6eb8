// The gradient through the element itself, and how its divisor moves the loss.

fn value(i: u32) -> f32 {
    let base = divisor(i, channel_of(i));
    let direct = dy_at(i) * power(base);
    dx_put(i, direct);
    return direct * x_at(i) / base;
}

fn value(i: u32) -> f32 {
    return x_at(i) * power(divisor(i, channel_of(i)));
}

// Elements in another order.

fn value(i: u32) -> f32 {
    return x_of(i);
}

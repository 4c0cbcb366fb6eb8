// Along one axis: the pixel that each pixel of the result comes from, and how much the next one weighs.

struct Body { from_size: u32, to_size: u32, bilinear: u32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let from_size = parameters.body.from_size;
    let to_size = parameters.body.to_size;
    if (parameters.body.bilinear == 0u) {
        nearer_put(i, wide_quotient(wide_product(i, from_size, 0u), to_size).x);
        weights_put(i, 0.0);
        return;
    }
    let place = wide_less(wide_product(2u * i + 1u, from_size, 0u), to_size);
    let found = wide_quotient(place, 2u * to_size);
    nearer_put(i, found.x);
    weights_put(i, f32(found.y) / f32(2u * to_size));
}

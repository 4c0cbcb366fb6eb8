// A thread adds one value at its index. Indices rise, so no two threads write to one place.

struct Body { elements: u32, scale: f32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let index = indices_at(i);
    if (index >= parameters.body.elements || (i > 0u && indices_at(i - 1u) >= index)) {
        out_of_range(i);
        return;
    }
    y_put(index, y_at(index) + parameters.body.scale * values_at(i));
}

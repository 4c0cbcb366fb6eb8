// One value of 32 bits everywhere, four at a time.

struct Body { bits: u32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i < parameters.count) { y_put4(i, vec4(bitcast<f32>(parameters.body.bits))); }
}

// A function of what is there and of what is read.

struct Body { scale: f32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let scale = parameters.body.scale;
    let y = y_$AT(i);
    $READ_ALL
    y_$PUT(i, $FUNCTION);
}

// Four elements that lie in a row at a time.

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    $OPERANDS
    y_put4(i, vec4(apply(a.x, b.x, c.x), apply(a.y, b.y, c.y), apply(a.z, b.z, c.z), apply(a.w, b.w, c.w)));
}

// One element of the result of a depthwise convolution. Positions are counted modulo 2^32: what would be negative is very
// large, and so outside.

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let rest = i / body.sizes_to[1];
    let plane = rest / body.sizes_to[0];
    let channel = plane % body.groups;
    let across_start = (i - rest * body.sizes_to[1]) * body.stride[1] - body.padding[1];
    var down = (rest - plane * body.sizes_to[0]) * body.stride[0] - body.padding[0];
    var tap = channel * body.kernel[0] * body.kernel[1];
    var value = 0.0;
    for (var y = 0u; y < body.kernel[0]; y++) {
        let row = (plane * body.sizes_from[0] + down) * body.sizes_from[1];
        var across = across_start;
        for (var x = 0u; x < body.kernel[1]; x++) {
            let seen = down < body.sizes_from[0] && across < body.sizes_from[1];
            let seen_value = x_at(select(0u, row + across, seen));
            value = fma(weight_at(tap), select(0.0, seen_value, seen), value);
            across += body.dilation[1];
            tap++;
        }
        down += body.dilation[0];
    }
    return $BIASED;
}

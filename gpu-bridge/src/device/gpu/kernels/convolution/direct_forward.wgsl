// Four neighbours of the result of a depthwise convolution, by each thread. Where the kernel steps as far as its window,
// the four see again what they saw a step before, but for one.
//
// Positions are counted modulo 2^32: what would be negative is very large, and so outside.

fn looked_up(row: u32, row_seen: bool, across: u32) -> f32 {
    let seen = row_seen && across < parameters.body.sizes_from[1];
    return select(0.0, x_at(select(0u, row + across, seen)), seen);
}

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let body = parameters.body;
    let fours = (body.sizes_to[1] + 3u) / 4u;
    let rest = thread / fours;
    let column = (thread - rest * fours) * 4u;
    let plane = rest / body.sizes_to[0];
    let channel = plane % body.groups;
    let stride = body.stride[1];
    let across_start = column * stride - body.padding[1];
    let taps = body.kernel[0] * body.kernel[1];
    var down = (rest - plane * body.sizes_to[0]) * body.stride[0] - body.padding[0];
    var sum = vec4<f32>();
    for (var y = 0u; y < body.kernel[0]; y++) {
        let row = (plane * body.sizes_from[0] + down) * body.sizes_from[1];
        let row_seen = down < body.sizes_from[0];
        var across = across_start;
        var window = vec4<f32>();
        if ($SLIDING) {
            window.y = looked_up(row, row_seen, across);
            window.z = looked_up(row, row_seen, across + stride);
            window.w = looked_up(row, row_seen, across + 2u * stride);
        }
        for (var x = 0u; x < body.kernel[1]; x++) {
            if ($SLIDING) {
                window = vec4<f32>(window.yzw, looked_up(row, row_seen, across + 3u * stride));
            } else {
                window = vec4<f32>(
                    looked_up(row, row_seen, across),
                    looked_up(row, row_seen, across + stride),
                    looked_up(row, row_seen, across + 2u * stride),
                    looked_up(row, row_seen, across + 3u * stride),
                );
            }
            let tap = y * body.kernel[1] + x;
            let weight = weight_at(channel * taps + select(tap, taps - 1u - tap, $REVERSED));
            sum = fma(vec4<f32>(weight), window, sum);
            across += body.dilation[1];
        }
        down += body.dilation[0];
    }
    let first = rest * body.sizes_to[1] + column;
    let count = body.sizes_to[1] - column;
    var value = sum.x;
    y_put(first, $BIASED);
    value = sum.y;
    if (count > 1u) { y_put(first + 1u, $BIASED); }
    value = sum.z;
    if (count > 2u) { y_put(first + 2u, $BIASED); }
    value = sum.w;
    if (count > 3u) { y_put(first + 3u, $BIASED); }
}

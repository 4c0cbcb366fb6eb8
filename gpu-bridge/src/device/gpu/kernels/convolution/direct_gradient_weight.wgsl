// Four neighbours in a row of the gradient of a depthwise convolution's weight, for one image, by each thread. Where the
// window steps as far as the kernel, the four see again what they saw a step before, but for one.
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
    let fours = (body.kernel[1] + 3u) / 4u;
    let rest = thread / fours;
    let tap = (thread - rest * fours) * 4u;
    // Of an image and a channel.
    let plane = rest / body.kernel[0];
    let step = body.dilation[1];
    let across_start = tap * step - body.padding[1];
    let first = rest * body.kernel[1] + tap;
    let count = body.kernel[1] - tap;
    var down = (rest - plane * body.kernel[0]) * body.dilation[0] - body.padding[0] + body.rows[0] * body.stride[0];
    var sum = vec4<f32>();
    if (body.rows[0] > 0u) {
        // Goes on from what the launch before left.
        sum.x = y_at(first);
        if (count > 1u) { sum.y = y_at(first + 1u); }
        if (count > 2u) { sum.z = y_at(first + 2u); }
        if (count > 3u) { sum.w = y_at(first + 3u); }
    }
    for (var y = body.rows[0]; y < body.rows[1]; y++) {
        let row = (plane * body.sizes_from[0] + down) * body.sizes_from[1];
        let row_seen = down < body.sizes_from[0];
        let changes = (plane * body.sizes_to[0] + y) * body.sizes_to[1];
        var across = across_start;
        var window = vec4<f32>();
        if ($SLIDING) {
            window.y = looked_up(row, row_seen, across);
            window.z = looked_up(row, row_seen, across + step);
            window.w = looked_up(row, row_seen, across + 2u * step);
        }
        var row_sum = vec4<f32>();
        for (var x = 0u; x < body.sizes_to[1]; x++) {
            if ($SLIDING) {
                window = vec4<f32>(window.yzw, looked_up(row, row_seen, across + 3u * step));
            } else {
                window = vec4<f32>(
                    looked_up(row, row_seen, across),
                    looked_up(row, row_seen, across + step),
                    looked_up(row, row_seen, across + 2u * step),
                    looked_up(row, row_seen, across + 3u * step),
                );
            }
            row_sum = fma(vec4<f32>(dy_at(changes + x)), window, row_sum);
            across += body.stride[1];
        }
        sum += row_sum;
        down += body.stride[0];
    }
    y_put(first, sum.x);
    if (count > 1u) { y_put(first + 1u, sum.y); }
    if (count > 2u) { y_put(first + 2u, sum.z); }
    if (count > 3u) { y_put(first + 3u, sum.w); }
}

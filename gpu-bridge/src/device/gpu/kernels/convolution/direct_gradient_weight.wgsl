// One element of the gradient of a depthwise convolution's weight, for one image.

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let taps = body.kernel[0] * body.kernel[1];
    // Of an image and a channel.
    let plane = i / taps;
    let tap = i - plane * taps;
    let tap_down = tap / body.kernel[1] * body.dilation[0] - body.padding[0];
    let tap_across = tap % body.kernel[1] * body.dilation[1] - body.padding[1];
    var sum = 0.0;
    for (var row = 0u; row < body.sizes_to[0]; row++) {
        let down = row * body.stride[0] + tap_down;
        let start = (plane * body.sizes_from[0] + down) * body.sizes_from[1];
        let change = (plane * body.sizes_to[0] + row) * body.sizes_to[1];
        var row_sum = 0.0;
        for (var column = 0u; column < body.sizes_to[1]; column++) {
            let across = column * body.stride[1] + tap_across;
            let seen = down < body.sizes_from[0] && across < body.sizes_from[1];
            let seen_value = x_at(select(0u, start + across, seen));
            row_sum = fma(dy_at(change + column), select(0.0, seen_value, seen), row_sum);
        }
        sum += row_sum;
    }
    return sum;
}

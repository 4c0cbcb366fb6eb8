// One element of the gradient of the input: everything in the result that has seen it.

fn value(i: u32) -> f32 {
    let body = parameters.body;
    let rest = i / body.sizes_from[1];
    let plane = rest / body.sizes_from[0];
    let channel = plane % (body.groups * body.inputs);
    let image = plane / (body.groups * body.inputs);
    let part = channel / body.inputs;
    let down = rest - plane * body.sizes_from[0] + body.padding[0];
    let across = i - rest * body.sizes_from[1] + body.padding[1];
    let taps = body.kernel[0] * body.kernel[1];
    var sum = 0.0;
    for (var output = part * body.outputs; output < (part + 1u) * body.outputs; output++) {
        let result = (image * body.groups * body.outputs + output) * body.sizes_to[0];
        let kernel = (output * body.inputs + channel - part * body.inputs) * taps;
        for (var y = 0u; y < body.kernel[0]; y++) {
            let back_down = y * body.dilation[0];
            let row = (down - back_down) / body.stride[0];
            let row_seen = down >= back_down && row < body.sizes_to[0] && row * body.stride[0] == down - back_down;
            for (var x = 0u; x < body.kernel[1]; x++) {
                let back_across = x * body.dilation[1];
                let column = (across - back_across) / body.stride[1];
                let seen = row_seen && across >= back_across && column < body.sizes_to[1]
                    && column * body.stride[1] == across - back_across;
                let change = dy_at(select(0u, (result + row) * body.sizes_to[1] + column, seen));
                sum = fma(weight_at(kernel + y * body.kernel[1] + x), select(0.0, change, seen), sum);
            }
        }
    }
    return sum;
}

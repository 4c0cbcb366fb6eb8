// The gradient of each stored value: its row of one dense operand times its column's row of the other.

fn value(i: u32) -> f32 {
    let column = columns_at(i);
    if (column >= parameters.body.count) {
        out_of_range(column);
        return 0.0;
    }
    let wide = parameters.body.wide;
    let first = column * wide;
    let second = row_of(i) * wide;
    var sums = vec4<f32>();
    let whole = wide & ~3u;
    for (var at = 0u; at < whole; at += 4u) {
        sums += vec4<f32>(x_at(first + at), x_at(first + at + 1u), x_at(first + at + 2u), x_at(first + at + 3u))
            * vec4<f32>(dy_at(second + at), dy_at(second + at + 1u), dy_at(second + at + 2u), dy_at(second + at + 3u));
    }
    for (var at = whole; at < wide; at++) {
        sums.x += x_at(first + at) * dy_at(second + at);
    }
    return (sums.x + sums.y) + (sums.z + sums.w);
}

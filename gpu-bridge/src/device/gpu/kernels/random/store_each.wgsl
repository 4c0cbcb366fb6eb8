// Four elements one by one: the last may not be there.

fn store(i: u32, value: vec4<f32>) {
    let first = i * 4u;
    let count = parameters.body.elements - first;
    y_put(first, value.x);
    if (count > 1u) { y_put(first + 1u, value.y); }
    if (count > 2u) { y_put(first + 2u, value.z); }
    if (count > 3u) { y_put(first + 3u, value.w); }
}

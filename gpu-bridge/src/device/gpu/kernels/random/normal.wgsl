// Normal numbers (Box and Muller): two words are a distance and a direction.

fn pair(distance: u32, direction: u32) -> vec2<f32> {
    let radius = $SQRT(-2.0 * log_(f32((distance >> 8u) + 1u) * 5.9604645e-8));
    return radius * cosine_and_sine_of_turn(direction >> 8u);
}

fn numbers(i: u32, bits: vec4<u32>) -> vec4<f32> {
    return parameters.body.p + parameters.body.q * vec4(pair(bits.x, bits.y), pair(bits.z, bits.w));
}

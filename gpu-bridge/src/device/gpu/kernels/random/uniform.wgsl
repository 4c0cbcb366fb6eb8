// Uniform numbers: `low + span * u`, each operation rounded, and below the end.

fn numbers(i: u32, bits: vec4<u32>) -> vec4<f32> {
    return min(parameters.body.p + rounded(parameters.body.q * unit(bits)), vec4(parameters.body.r));
}

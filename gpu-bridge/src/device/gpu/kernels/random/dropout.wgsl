// What is kept is scaled; what is dropped is zero whatever it was.

fn numbers(i: u32, bits: vec4<u32>) -> vec4<f32> {
    return select(vec4(0.0), load(i) * parameters.body.p, bits >= vec4(parameters.body.threshold));
}

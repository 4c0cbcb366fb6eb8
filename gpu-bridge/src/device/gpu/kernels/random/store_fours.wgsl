// Four elements at once.

fn store(i: u32, value: vec4<f32>) { y_put4(i, value); }

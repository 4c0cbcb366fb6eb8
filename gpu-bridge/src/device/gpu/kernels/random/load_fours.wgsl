fn load(i: u32) -> vec4<f32> { return x_at4(i); }

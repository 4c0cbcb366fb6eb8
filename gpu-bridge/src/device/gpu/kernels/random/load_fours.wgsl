// What lies there already, four elements at once.

fn load(i: u32) -> vec4<f32> { return x_at4(i); }

// What comes after normalization, and the gradient by what it is given. NaN is let through.

fn identity(z: f32) -> f32 { return z; }

fn identity_back(z: f32, dy: f32) -> f32 { return dy; }

fn relu(z: f32) -> f32 { return select(z, 0.0, z <= 0.0); }

fn relu_back(z: f32, dy: f32) -> f32 { return select(dy, 0.0, z <= 0.0); }

fn relu6(z: f32) -> f32 { return select(relu(z), 6.0, z >= 6.0); }

fn relu6_back(z: f32, dy: f32) -> f32 { return select(dy, 0.0, z <= 0.0 || z >= 6.0); }

fn hard_swish(z: f32) -> f32 { return z * relu6(z + 3.0) * (1.0 / 6.0); }

fn hard_swish_back(z: f32, dy: f32) -> f32 {
    let between = dy * (z * (1.0 / 3.0) + 0.5);
    return select(select(between, dy, z >= 3.0), 0.0, z <= -3.0);
}

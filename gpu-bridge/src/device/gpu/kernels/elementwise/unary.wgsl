// A function of one element. `a` and `b` are its attributes.

struct Body { a: f32, b: f32 }

fn negative(x: f32) -> f32 { return -x; }

fn relu(x: f32) -> f32 { return select(x, 0.0, x < 0.0); }

fn affine(x: f32) -> f32 { return parameters.body.a * x + parameters.body.b; }

fn value(i: u32) -> f32 {
    return $FUNCTION(x_of(i));
}

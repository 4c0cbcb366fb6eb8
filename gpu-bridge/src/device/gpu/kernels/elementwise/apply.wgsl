// A function of the elements `a`, `b` and `c` of up to three operands, and of two attributes.

struct Body { p: f32, q: f32 }

fn apply(a: f32, b: f32, c: f32) -> f32 {
    let p = parameters.body.p;
    let q = parameters.body.q;
    return $FUNCTION;
}

// Counting. Every value fits 32 bits, so it is right however often its parts wrap around.

struct Body { start: u32, step: u32 }

fn value(i: u32) -> $TYPE {
    let bits = parameters.body.start + parameters.body.step * i;
    return $FUNCTION;
}

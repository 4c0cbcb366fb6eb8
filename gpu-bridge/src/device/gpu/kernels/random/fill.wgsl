// One value everywhere.

struct Body { bits: u32 }

fn value(i: u32) -> $TYPE {
    return bitcast<$TYPE>(parameters.body.bits);
}

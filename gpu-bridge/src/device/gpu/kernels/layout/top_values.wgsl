// The elements at the indices that were found.

struct Body { size: u32, picked: u32 }

fn value(i: u32) -> f32 {
    return x_at(i / parameters.body.picked * parameters.body.size + indices_at(i));
}

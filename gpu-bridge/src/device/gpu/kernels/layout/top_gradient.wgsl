// Each element gets what its row has for its index, in order.

struct Body { size: u32, picked: u32 }

fn value(i: u32) -> f32 {
    let size = parameters.body.size;
    let row = i / size;
    let own = i - row * size;
    let first = row * parameters.body.picked;
    var sum = 0.0;
    for (var at = first; at < first + parameters.body.picked; at++) {
        let index = indices_at(at);
        if (index == own) { sum += dy_at(at); }
        if (own == 0u && index >= size) { out_of_range(index); }
    }
    return sum;
}

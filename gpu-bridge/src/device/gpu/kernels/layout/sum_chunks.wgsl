// The sums of all chunks, in order.

struct Body { chunks: u32, size: u32 }

fn value(i: u32) -> f32 {
    var sum = sums_at(i);
    for (var chunk = 1u; chunk < parameters.body.chunks; chunk++) {
        sum += sums_at(chunk * parameters.body.size + i);
    }
    return sum;
}

// A product of square matrices, one thread per element: what the others are measured against.

struct Body { size: u32 }

fn value(i: u32) -> f32 {
    let size = parameters.body.size;
    let row = i / size;
    let column = i % size;
    var sum = 0.0;
    for (var k = 0u; k < size; k++) {
        sum += a_at(row * size + k) * b_at(k * size + column);
    }
    return sum;
}

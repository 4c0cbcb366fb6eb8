// 1 at the index, else 0.

struct Body { count: u32, width: u32 }

fn value(i: u32) -> f32 {
    let row = i / parameters.body.count;
    let class_of = index_index(row);
    let at = i - row * parameters.body.count;
    if (at == 0u && class_of >= parameters.body.count) {
        out_of_range(class_of);
    }
    return select(0.0, 1.0, at == class_of);
}

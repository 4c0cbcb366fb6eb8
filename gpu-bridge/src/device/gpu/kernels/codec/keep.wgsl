// Changes that are large beside their weight, zeros in place of the others. What is not negative compares as its bits do.

struct Body { threshold: f32 }

fn value(i: u32) -> u32 {
    let change = changes_at(i);
    let size = change & 0x7fffffffu;
    let weight = weights_at(i);
    let least = bitcast<u32>(parameters.body.threshold * abs(weight));
    return select(0u, change, size != 0u && (size >= least || is_nan(weight)));
}

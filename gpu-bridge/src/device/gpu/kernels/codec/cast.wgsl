// The nearest f16, finite where the element is: the largest one for what is beyond it.

const LARGEST = 0x477fe000u;

fn value(i: u32) -> f32 {
    let x = x_at(i);
    let size = x & 0x7fffffffu;
    let beyond = size > LARGEST && size < 0x7f800000u;
    return bitcast<f32>(select(x, (x & 0x80000000u) | LARGEST, beyond));
}

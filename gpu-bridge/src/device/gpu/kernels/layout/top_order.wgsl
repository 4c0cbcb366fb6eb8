// Which of two elements of a row comes first.

// Stands for no element: it comes after all others.
const NOTHING = 0xffffffffu;

// The larger the earlier: NaN first, both zeros alike, nothing last.
fn rank_of(row: u32, size: u32, index: u32) -> u32 {
    if (index == NOTHING) { return 0u; }
    let x = x_at(row * size + index);
    var bits = bitcast<u32>(x);
    if (is_nan(x)) { return 0xffffffffu; }
    if ((bits << 1u) == 0u) { bits = 0u; }
    if ((bits >> 31u) == 1u) { return ~bits; }
    return bits | 0x80000000u;
}

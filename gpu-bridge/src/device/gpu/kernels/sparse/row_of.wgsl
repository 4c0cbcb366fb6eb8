// The row of a stored value. Offsets that are wrong give a wrong row, but one that is there.

struct Body { rows: u32, count: u32, wide: u32, together: u32 }

fn row_of(stored: u32) -> u32 {
    var low = 0u;
    var high = parameters.body.rows;
    while (high - low > 1u) {
        let middle = low + (high - low) / 2u;
        if (offsets_at(middle) <= stored) { low = middle; } else { high = middle; }
    }
    return low;
}

// Each stored value times its row of a vector.

fn value(i: u32) -> f32 {
    return values_at(i) * r_at(row_of(i));
}

// The sum, or the mean.

fn finish(result: u32, state: State) {
    y_put(result, $RESULT);
}

// Of nothing it is not a number.
fn mean(sum: f32) -> f32 {
    let count = parameters.body.attributes.count;
    if (count == 0.0) { return not_a_number(); }
    return sum / count;
}

// `factor` is how many elements are left when the correction is taken from them.

fn finish(result: u32, state: State) {
    let left = parameters.body.attributes.factor;
    if (left <= 0.0) {
        y_put(result, not_a_number());
    } else {
        y_put(result, state.y / left);
    }
}

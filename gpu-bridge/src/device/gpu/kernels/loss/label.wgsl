// The loss of a row that has a label, or none where the label is wrong.

fn label_loss(result: u32, state: State) -> f32 {
    let classes = parameters.body.fold.folded_inner;
    let label = labels_index(result);
    if (label >= classes) {
        out_of_range(label);
        return not_a_number();
    }
    return $LOSS(result, x_at(result * classes + label), state);
}

fn finish(result: u32, ready: State) {
    losses_put(result, label_loss(result, ready));
}

// The loss of a row is that of its label; there is none where the label is wrong.

fn finish(result: u32, ready: Ready) {
    let classes = parameters.body.fold.folded_inner;
    if (ready.label < classes) {
        losses_put(result, $LOSS(x_at(result * classes + ready.label), ready));
    } else {
        out_of_range(ready.label);
        losses_put(result, not_a_number());
    }
}

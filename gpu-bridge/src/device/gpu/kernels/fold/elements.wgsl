// Folds the elements of a lane. Few are folded in a row, and what comes of them is merged: so that the error of a sum does
// not grow with their number.

fn fold_elements(place: Place) -> State {
    var state = nothing();
    if (place.result >= parameters.body.fold.results) { return state; }
    let folded_inner = parameters.body.fold.folded_inner;
    let across = parameters.body.fold.kept_inner * folded_inner;
    let step_outer = parameters.body.fold.step_outer;
    let step_inner = parameters.body.fold.step_inner;
    let rows = steps(place.outer, parameters.body.fold.folded_outer, step_outer);
    let columns = steps(place.inner, folded_inner, step_inner);
    var row = first_of(place.result) + place.outer * across + place.inner;
    var row_folded = place.outer * folded_inner + place.inner;
    var run = begin(place.result, state);
    var length = 0u;
    // The first run is short: what is known after it makes the others more accurate.
    var most = 8u;
    for (var i = 0u; i < rows; i++) {
        var at = row;
        var folded = row_folded;
        for (var j = 0u; j < columns; j++) {
            run = step(run, at, folded, place.result);
            at += step_inner;
            folded += step_inner;
            length += 1u;
            if (length == most) {
                state = merge(state, settle(run, length));
                most = 64u;
                run = begin(place.result, state);
                length = 0u;
            }
        }
        row += step_outer * across;
        row_folded += step_outer * folded_inner;
    }
    if (length > 0u) { state = merge(state, settle(run, length)); }
    return state;
}

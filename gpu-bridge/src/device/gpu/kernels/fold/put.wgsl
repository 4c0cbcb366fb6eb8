// Gives each element of a lane what it is to become, by what was made ready for its result once.

fn put_elements(place: Place, ready: Ready) {
    if (place.result >= parameters.body.fold.results) { return; }
    let folded_inner = parameters.body.fold.folded_inner;
    let across = parameters.body.fold.kept_inner * folded_inner;
    let step_outer = parameters.body.fold.step_outer;
    let step_inner = parameters.body.fold.step_inner;
    let rows = steps(place.outer, parameters.body.fold.folded_outer, step_outer);
    let columns = steps(place.inner, folded_inner, step_inner);
    var row = first_of(place.result) + place.outer * across + place.inner;
    for (var i = 0u; i < rows; i++) {
        var at = row;
        var folded = place.inner;
        for (var j = 0u; j < columns; j++) {
            put(at, folded, place.result, ready);
            at += step_inner;
            folded += step_inner;
        }
        row += step_outer * across;
    }
    if (place.outer == 0u && place.inner == 0u) { finish(place.result, ready); }
}

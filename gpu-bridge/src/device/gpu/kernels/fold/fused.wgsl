// Folds the elements of a result and puts them, in one go.

fn run(group: u32, lane: u32) {
    let place = place_of(group, lane);
    let state = joined(place, lane, fold_elements(place));
    if (place.result < parameters.body.fold.results) { put_elements(place, prepare(place.result, state)); }
}

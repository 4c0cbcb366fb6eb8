// Puts the elements of results whose states are known.

fn run(group: u32, lane: u32) {
    let place = place_of(group, lane);
    if (place.result < parameters.body.fold.results) {
        put_elements(place, prepare(place.result, from_at4(place.result)));
    }
}

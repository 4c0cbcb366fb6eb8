// Puts the elements of results of which nothing has to be found out.

fn run(group: u32, lane: u32) {
    let place = place_of(group, lane);
    if (place.result < parameters.body.fold.results) {
        put_elements(place, prepare(place.result, State()));
    }
}

// Every result has one part: its state is finished.

fn run(group: u32, lane: u32) {
    let place = place_of(group, lane);
    let state = joined(place, lane, fold_elements(place));
    if (is_kept(place)) { finish(place.result, state); }
}

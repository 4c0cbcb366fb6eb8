// Keeps the state of each part.

fn run(group: u32, lane: u32) {
    let place = place_of(group, lane);
    let state = joined(place, lane, fold_elements(place));
    if (is_kept(place)) {
        let fold = parameters.body.fold;
        into_put4(place.result * fold.state_stride + part_of(place) * fold.part_stride, state);
    }
}

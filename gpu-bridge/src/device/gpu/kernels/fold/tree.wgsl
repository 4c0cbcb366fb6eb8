// Lanes that share a result merge their states by halves.

var<workgroup> states: array<vec4<f32>, $LANES>;

fn joined(place: Place, lane: u32, state: State) -> State {
    states[lane] = state;
    workgroupBarrier();
    let stride = parameters.body.fold.sharer_stride;
    for (var half = parameters.body.fold.sharers / 2u; half > 0u; half /= 2u) {
        if (place.sharer < half) {
            states[lane] = merge(states[lane], states[lane + half * stride]);
        }
        workgroupBarrier();
    }
    return states[lane - place.sharer * stride];
}

fn part_of(place: Place) -> u32 {
    return place.part;
}

fn is_kept(place: Place) -> bool {
    return place.sharer == 0u && place.result < parameters.body.fold.results;
}

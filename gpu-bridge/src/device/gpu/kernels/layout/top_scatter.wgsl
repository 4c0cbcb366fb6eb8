// A thread adds some elements of a row where their indices say, in order.

struct Body { size: u32, picked: u32, skipped: u32, most: u32 }

fn run(group: u32, lane: u32) {
    let row = group * $LANES + lane;
    if (row >= parameters.count) { return; }
    let size = parameters.body.size;
    let first = row * parameters.body.picked + parameters.body.skipped;
    let end = first + min(parameters.body.most, parameters.body.picked - parameters.body.skipped);
    for (var at = first; at < end; at++) {
        let index = indices_at(at);
        if (index >= size) { out_of_range(index); continue; }
        let place = row * size + index;
        dx_put(place, dx_at(place) + dy_at(at));
    }
}

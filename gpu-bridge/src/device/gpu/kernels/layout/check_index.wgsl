// Nothing but whether all indices are in range.

struct Body { count: u32, width: u32 }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i < parameters.count) {
        let at = index_index(i);
        if (at >= parameters.body.count) { out_of_range(at); }
    }
}

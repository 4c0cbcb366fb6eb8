// Whether the first and the last offset are right.

struct Body { rows: u32, stored: u32, first_is_wrong: u32, last_is_wrong: u32 }

fn run(group: u32, lane: u32) {
    let first = offsets_at(0u);
    let last = offsets_at(parameters.body.rows);
    if (first != 0u) {
        wrong(parameters.body.first_is_wrong, first);
    } else if (last != parameters.body.stored) {
        wrong(parameters.body.last_is_wrong, last);
    }
    wrong_put(0u, select(0u, 1u, first != 0u || last != parameters.body.stored));
}

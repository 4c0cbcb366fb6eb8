// One pass of a bitonic sort of each row's indices.

struct Body { size: u32, length: u32, sorted: u32, distance: u32 }

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let size = parameters.body.size;
    let length = parameters.body.length;
    let distance = parameters.body.distance;
    if (distance == 0u) {
        let at = thread % length;
        order_put(thread, select(NOTHING, at, at < size));
        return;
    }
    let row = thread / (length / 2u);
    let pair = thread - row * (length / 2u);
    let first = 2u * pair - (pair & (distance - 1u));
    let start = row * length;
    let a = order_at(start + first);
    let b = order_at(start + first + distance);
    let rank_a = rank_of(row, size, a);
    let rank_b = rank_of(row, size, b);
    let ordered = rank_a > rank_b || (rank_a == rank_b && a <= b);
    // Every other run is sorted the other way round.
    if (ordered != ((first & parameters.body.sorted) == 0u)) {
        order_put(start + first, b);
        order_put(start + first + distance, a);
    }
}

// The next digit of the least element that is wanted, and how many are wanted of those that have it.

fn run(group: u32, lane: u32) {
    if (group * $LANES + lane >= parameters.count) { return; }
    var digits = 0u;
    var wanted = parameters.body.wanted;
    if (parameters.body.shift < 24u) {
        digits = least_at(0u);
        wanted = least_at(1u);
    }
    var digit = BINS - 1u;
    while (digit > 0u && totals_at(digit) < wanted) {
        wanted -= totals_at(digit);
        digit--;
    }
    least_put(0u, (digits << 8u) | digit);
    least_put(1u, wanted);
}

// One coordinate of a chunk's points, added up for the clusters of a slice in order.

fn run(group: u32, lane: u32) {
    let thread = group * $LANES + lane;
    if (thread >= parameters.count) { return; }
    let dimensions = parameters.body.dimensions;
    let clusters = parameters.body.clusters;
    let row = dimensions + 1u;
    let other = parameters.body.slices - 1u;
    let unit = thread / row;
    let axis = thread - unit * row;
    let slice = unit & other;
    let chunk = unit / parameters.body.slices;
    let start = chunk * parameters.body.grain;
    let length = min(parameters.body.grain, parameters.body.points - start);
    let skipped = min(parameters.body.skipped, length);
    let first = start + skipped;
    let end = first + min(parameters.body.most, length - skipped);
    for (var point = first; point < end; point++) {
        let cluster = assignment_at(point);
        if (cluster >= clusters) {
            if (slice == 0u && axis == 0u) { out_of_range(cluster); }
            continue;
        }
        if ((cluster & other) != slice) { continue; }
        let at = 2u * ((chunk * clusters + cluster) * row + axis);
        if (axis == dimensions) {
            partial_sums_put(at, partial_sums_at(at) + 1u);
            continue;
        }
        let total = vec2<f32>(bitcast<f32>(partial_sums_at(at)), bitcast<f32>(partial_sums_at(at + 1u)));
        let sum = exact_sum(total, points_at(point * dimensions + axis));
        partial_sums_put(at, bitcast<u32>(sum.x));
        partial_sums_put(at + 1u, bitcast<u32>(sum.y));
    }
}

// The mean of each plane, by a group of threads each.

struct Body { area: u32 }

var<workgroup> sums: array<f32, $LANES>;

fn run(group: u32, lane: u32) {
    let area = parameters.body.area;
    var sum = 0.0;
    for (var at = lane; at < area; at += $LANES) {
        sum += x_at(group * area + at);
    }
    sums[lane] = sum;
    for (var half = $LANES / 2u; half > 0u; half = half / 2u) {
        workgroupBarrier();
        if (lane < half) { sums[lane] += sums[lane + half]; }
    }
    if (lane == 0u) { y_put(group, sums[0] / f32(area)); }
}

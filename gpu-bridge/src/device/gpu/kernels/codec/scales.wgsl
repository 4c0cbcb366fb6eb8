// The largest element of a bucket in size: sizes compare as their bits do, NaN above all.

struct Body { elements: u32, bucket: u32 }

var<workgroup> largest: atomic<u32>;

fn run(group: u32, lane: u32) {
    if (lane == 0u) { atomicStore(&largest, 0u); }
    workgroupBarrier();
    let start = group * parameters.body.bucket;
    let count = min(parameters.body.bucket, parameters.body.elements - start);
    var own = 0u;
    for (var at = lane; at < count; at += $LANES) { own = max(own, x_at(start + at) & 0x7fffffffu); }
    atomicMax(&largest, own);
    workgroupBarrier();
    if (lane > 0u) { return; }
    var scale = atomicLoad(&largest);
    if (scale >= 0x7f800000u) { scale = 0x7fc00000u; }
    if (scale < 0x00800000u) { scale = 0u; }
    y_put(group, bitcast<f32>(scale));
}

// The nearest centroid of each point: a thread has a point, and compares it with eight centroids at a time.

struct Body { dimensions: u32, centroids: u32 }

// Coordinates that are summed before they are added to the rest, so that rounding stays small in many dimensions.
const DEPTH = 64u;

fn run(group: u32, lane: u32) {
    let point = group * $LANES + lane;
    if (point >= parameters.count) { return; }
    let dimensions = parameters.body.dimensions;
    let centroids = parameters.body.centroids;
    let last = centroids - 1u;
    let own = point * dimensions;
    var best = 0u;
    var best_distance = not_a_number();
    for (var first = 0u; first < centroids; first += 8u) {
        // Where fewer than eight are left the last one is compared again.
        let a = min(first, last) * dimensions;
        let b = min(first + 1u, last) * dimensions;
        let c = min(first + 2u, last) * dimensions;
        let d = min(first + 3u, last) * dimensions;
        let e = min(first + 4u, last) * dimensions;
        let f = min(first + 5u, last) * dimensions;
        let g = min(first + 6u, last) * dimensions;
        let h = min(first + 7u, last) * dimensions;
        var low = vec4<f32>();
        var high = vec4<f32>();
        for (var start = 0u; start < dimensions; start += DEPTH) {
            var low_part = vec4<f32>();
            var high_part = vec4<f32>();
            let end = start + min(DEPTH, dimensions - start);
            for (var axis = start; axis < end; axis++) {
                let x = vec4<f32>(points_at(own + axis));
                let near = x - vec4<f32>(centroids_at(a + axis), centroids_at(b + axis), centroids_at(c + axis), centroids_at(d + axis));
                let far = x - vec4<f32>(centroids_at(e + axis), centroids_at(f + axis), centroids_at(g + axis), centroids_at(h + axis));
                low_part += near * near;
                high_part += far * far;
            }
            low += low_part;
            high += high_part;
        }
        var distances = array<f32, 8>(low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w);
        for (var k = 0u; k < 8u; k++) {
            // NaN is nearest only to begin with.
            let distance = distances[k];
            if (first + k < centroids && !is_nan(distance) && (is_nan(best_distance) || distance < best_distance)) {
                best = first + k;
                best_distance = distance;
            }
        }
    }
    indices_put(point, best);
    distances_put(point, best_distance);
}

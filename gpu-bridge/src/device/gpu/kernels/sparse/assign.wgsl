// The nearest centroid of each point: a thread compares four points with four centroids at a time, so that each number
// that it loads is used four times.

struct Body { dimensions: u32, centroids: u32, points: u32, first: u32, quads: u32 }

// Coordinates that are summed before they are added to the rest, so that rounding stays small in many dimensions.
const DEPTH = 64u;

// For each of the four points. NaN is nearest only to begin with.
var<private> best: array<u32, 4>;
var<private> best_distance: array<f32, 4>;

fn compare(point: u32, first: u32, distances: vec4<f32>) {
    for (var k = 0u; k < 4u; k++) {
        let distance = distances[k];
        let known = best_distance[point];
        if (first + k < parameters.body.centroids && !is_nan(distance) && (is_nan(known) || distance < known)) {
            best[point] = first + k;
            best_distance[point] = distance;
        }
    }
}

fn run(group: u32, lane: u32) {
    let dimensions = parameters.body.dimensions;
    let centroids = parameters.body.centroids;
    let points = parameters.body.points;
    let start = group * $LANES * 4u + lane;
    if (start >= points) { return; }
    // Where fewer than four are left the last one is done again.
    let own = min(vec4<u32>(start) + vec4<u32>(0u, 1u, 2u, 3u) * $LANES, vec4<u32>(points - 1u)) * dimensions;
    for (var k = 0u; k < 4u; k++) {
        best[k] = 0u;
        best_distance[k] = not_a_number();
        if (parameters.body.first > 0u) {
            let point = min(start + k * $LANES, points - 1u);
            best[k] = indices_at(point);
            best_distance[k] = distances_at(point);
        }
    }
    for (var quad = 0u; quad < parameters.body.quads; quad++) {
        let first = parameters.body.first + quad * 4u;
        let center = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(centroids - 1u)) * dimensions;
        var sums: array<vec4<f32>, 4>;
        for (var low = 0u; low < dimensions; low += DEPTH) {
            var a = vec4<f32>();
            var b = vec4<f32>();
            var c = vec4<f32>();
            var d = vec4<f32>();
            let high = low + min(DEPTH, dimensions - low);
            for (var axis = low; axis < high; axis++) {
                let at = vec4<f32>(
                    centroids_at(center.x + axis),
                    centroids_at(center.y + axis),
                    centroids_at(center.z + axis),
                    centroids_at(center.w + axis),
                );
                let from_a = points_at(own.x + axis) - at;
                let from_b = points_at(own.y + axis) - at;
                let from_c = points_at(own.z + axis) - at;
                let from_d = points_at(own.w + axis) - at;
                a += from_a * from_a;
                b += from_b * from_b;
                c += from_c * from_c;
                d += from_d * from_d;
            }
            sums[0] += a;
            sums[1] += b;
            sums[2] += c;
            sums[3] += d;
        }
        for (var k = 0u; k < 4u; k++) { compare(k, first, sums[k]); }
    }
    for (var k = 0u; k < 4u; k++) {
        let point = start + k * $LANES;
        if (point < points) {
            indices_put(point, best[k]);
            distances_put(point, best_distance[k]);
        }
    }
}

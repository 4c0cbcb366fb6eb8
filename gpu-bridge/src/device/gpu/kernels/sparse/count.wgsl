// The number of points of each cluster, of all chunks.

struct Body {
    nought: u32,
    points: u32,
    clusters: u32,
    dimensions: u32,
    grain: u32,
    slices: u32,
    chunks: u32,
    skipped: u32,
    most: u32,
}

fn value(i: u32) -> u32 {
    let row = parameters.body.dimensions + 1u;
    var count = 0u;
    for (var chunk = 0u; chunk < parameters.body.chunks; chunk++) {
        count += partial_sums_at(2u * ((chunk * parameters.body.clusters + i) * row + parameters.body.dimensions));
    }
    return count;
}

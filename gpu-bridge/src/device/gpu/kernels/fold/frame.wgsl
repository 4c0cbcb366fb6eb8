// Many elements to one state for each result.
//
// The elements are seen as [kept outer, folded outer, kept inner, folded inner]. Lanes of a workgroup belong to different
// results or share one; a result may also be cut into parts, each another workgroup's. Lanes that share a result take
// turns at its elements, so that neighbours read neighbours.

alias State = vec4<f32>;

struct Fold {
    results: u32,
    kept_inner: u32,
    folded_outer: u32,
    folded_inner: u32,
    // How far it is to the next element of the same lane.
    step_outer: u32,
    step_inner: u32,
    // Lanes that share a result, and how far they are apart.
    sharers: u32,
    sharer_stride: u32,
    sharers_inner: u32,
    // Results of a workgroup, and how far their lanes are apart.
    per_group: u32,
    result_stride: u32,
    // Workgroups that share a result.
    parts_outer: u32,
    parts_inner: u32,
    // Where the states of parts lie.
    state_stride: u32,
    part_stride: u32,
}

struct Attributes { count: f32, epsilon: f32, factor: f32, smoothing: f32 }

struct Body { fold: Fold, attributes: Attributes }

struct Place { result: u32, sharer: u32, part: u32, outer: u32, inner: u32 }

fn place_of(group: u32, lane: u32) -> Place {
    let parts = parameters.body.fold.parts_outer * parameters.body.fold.parts_inner;
    let block = group / parts;
    let part = group - block * parts;
    let sharers = parameters.body.fold.sharers;
    let per_group = parameters.body.fold.per_group;
    // Both are powers of two.
    let sharer = (lane / parameters.body.fold.sharer_stride) & (sharers - 1u);
    let result = block * per_group + ((lane / parameters.body.fold.result_stride) & (per_group - 1u));
    let inner = parameters.body.fold.sharers_inner;
    let part_outer = part / parameters.body.fold.parts_inner;
    let part_inner = part - part_outer * parameters.body.fold.parts_inner;
    return Place(
        result,
        sharer,
        part,
        part_outer * (sharers / inner) + sharer / inner,
        part_inner * inner + (sharer & (inner - 1u)),
    );
}

// How many of `start, start + step, ...` are below `size`.
fn steps(start: u32, size: u32, step: u32) -> u32 {
    if (start >= size) { return 0u; }
    return (size - 1u - start) / step + 1u;
}

// Where the first element of a result lies.
fn first_of(result: u32) -> u32 {
    let kept = parameters.body.fold.kept_inner;
    let inner = parameters.body.fold.folded_inner;
    let outer = result / kept;
    return outer * (parameters.body.fold.folded_outer * kept * inner) + (result - outer * kept) * inner;
}

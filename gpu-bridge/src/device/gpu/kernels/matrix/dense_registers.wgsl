// The factors of `dense.wgsl`, one step of the depth at a time. Past the edges the last row and the last column are
// repeated.

var<private> left_places: array<vec4<u32>, 4>;
var<private> right_places: array<vec4<u32>, 4>;
var<private> left_depth: u32;
var<private> right_depth: u32;

fn set_rows(block: u32, row: u32) {
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(parameters.body.tiling.rows - 1u));
    left_places[block] = left_start + rows * parameters.body.left_strides[0];
}

fn set_columns(block: u32, column: u32) {
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(parameters.body.tiling.columns - 1u));
    right_places[block] = right_start + columns * parameters.body.right_strides[1];
}

fn set_depth(depth: u32) {
    left_depth = depth * parameters.body.left_strides[1];
    right_depth = depth * parameters.body.right_strides[0];
}

fn next_depth() {
    left_depth += parameters.body.left_strides[1];
    right_depth += parameters.body.right_strides[0];
}

fn left_four(block: u32) -> vec4<f32> {
    let places = left_places[block] + left_depth;
    return vec4<f32>(left_at(places.x), left_at(places.y), left_at(places.z), left_at(places.w));
}

fn right_four(block: u32) -> vec4<f32> {
    let places = right_places[block] + right_depth;
    return vec4<f32>(right_at(places.x), right_at(places.y), right_at(places.z), right_at(places.w));
}

fn scaled(sum: vec4<f32>) -> vec4<f32> { return parameters.body.scale * sum; }

// The factors of a convolution seen as a product of matrices, without ever laying them out.
//
// A place along the depth and a column are numbers of three digits: channel or image, row, column. Of the left factor an
// element lies at a sum of multiples of the row and the digits of the depth. Of the right one, which is looked up in an
// image, the digits of the depth and of the column each say how far to go from image to image, down and across; what lies
// outside the image is zero. So forward and both gradients differ in numbers alone.
//
// Positions are counted modulo 2^32: what would be negative is very large, and so outside.

struct Body {
    tiling: Tiling,
    // How many values the second and the third digit have.
    depth_sizes: array<u32, 2>,
    column_sizes: array<u32, 2>,
    left_group: u32,
    left_row: u32,
    left_units: array<u32, 3>,
    right_group: u32,
    depth_units: array<u32, 3>,
    column_units: array<u32, 3>,
    // Where the image is entered.
    start: array<u32, 2>,
    image: array<u32, 2>,
    $PUT
}

var<private> group_index: u32;
var<private> left_rows: array<vec4<u32>, 4>;
var<private> column_down: array<vec4<u32>, 4>;
var<private> column_across: array<vec4<u32>, 4>;
var<private> column_places: array<vec4<u32>, 4>;
var<private> digits: vec3<u32>;
var<private> left_depth: u32;
var<private> depth_down: u32;
var<private> depth_across: u32;
var<private> depth_place: u32;
// Whether the depth is before its end.
var<private> inside: bool = true;

fn enter(group: u32) {
    group_index = group;
}

fn set_rows(block: u32, row: u32) {
    let body = parameters.body;
    let rows = min(vec4<u32>(row) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(body.tiling.rows - 1u));
    left_rows[block] = group_index * body.left_group + rows * body.left_row;
}

fn set_columns(block: u32, column: u32) {
    let body = parameters.body;
    let columns = min(vec4<u32>(column) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>(body.tiling.columns - 1u));
    let rest = columns / body.column_sizes[1];
    let first = rest / body.column_sizes[0];
    let down = (rest - first * body.column_sizes[0]) * body.column_units[1] + body.start[0];
    let across = (columns - rest * body.column_sizes[1]) * body.column_units[2] + body.start[1];
    column_down[block] = down;
    column_across[block] = across;
    column_places[block] =
        group_index * body.right_group + first * body.column_units[0] + down * body.image[1] + across;
}

fn set_depth(depth: u32) {
    let sizes = parameters.body.depth_sizes;
    let rest = depth / sizes[1];
    let first = rest / sizes[0];
    digits = vec3<u32>(first, rest - first * sizes[0], depth - rest * sizes[1]);
    look_up();
}

fn look_up() {
    let body = parameters.body;
    left_depth = digits.x * body.left_units[0] + digits.y * body.left_units[1] + digits.z * body.left_units[2];
    depth_down = digits.y * body.depth_units[1];
    depth_across = digits.z * body.depth_units[2];
    depth_place = digits.x * body.depth_units[0] + depth_down * body.image[1] + depth_across;
}

// Every digit of the step is below its size, so at most one is carried.
fn advance(step: vec3<u32>) {
    let sizes = parameters.body.depth_sizes;
    var next = digits + step;
    let carry_last = next.z >= sizes[1];
    next.z = select(next.z, next.z - sizes[1], carry_last);
    next.y += select(0u, 1u, carry_last);
    let carry_second = next.y >= sizes[0];
    next.y = select(next.y, next.y - sizes[0], carry_second);
    next.x += select(0u, 1u, carry_second);
    digits = next;
}

fn next_depth() {
    advance_by_one();
    look_up();
}

fn advance_by_one() {
    let sizes = parameters.body.depth_sizes;
    let last = digits.z + 1u == sizes[1];
    let second = last && digits.y + 1u == sizes[0];
    digits = vec3<u32>(
        select(digits.x, digits.x + 1u, second),
        select(select(digits.y, digits.y + 1u, last), 0u, second),
        select(digits.z + 1u, 0u, last),
    );
}

fn left_four(block: u32) -> vec4<f32> {
    let places = select(vec4<u32>(), left_rows[block] + left_depth, vec4<bool>(inside));
    return vec4<f32>(left_at(places.x), left_at(places.y), left_at(places.z), left_at(places.w));
}

fn right_four(block: u32) -> vec4<f32> {
    let image = parameters.body.image;
    let down = column_down[block] + depth_down < vec4<u32>(image[0]);
    let across = column_across[block] + depth_across < vec4<u32>(image[1]);
    let seen = down & across & vec4<bool>(inside);
    let places = select(vec4<u32>(), column_places[block] + depth_place, seen);
    let values = vec4<f32>(right_at(places.x), right_at(places.y), right_at(places.z), right_at(places.w));
    return select(vec4<f32>(), values, seen);
}

fn scaled(sum: vec4<f32>) -> vec4<f32> { return sum; }

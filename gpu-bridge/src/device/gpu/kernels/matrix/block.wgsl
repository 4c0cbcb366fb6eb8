// A block of four by four of a product: `sum[row][column]`.

struct Tiling {
    rows: u32,
    columns: u32,
    depth: u32,
    // The depth is cut into slices, each summed on its own.
    slice_depth: u32,
    // Of the place where tiles are put.
    put_rows: u32,
    put_columns: u32,
}

// How many pieces of this size cover a whole.
fn pieces(whole: u32, size: u32) -> u32 { return (whole + size - 1u) / size; }

fn slices() -> u32 {
    let tiling = parameters.body.tiling;
    return max(pieces(tiling.depth, max(tiling.slice_depth, 1u)), 1u);
}

// Adds the products of four rows with four columns at one depth.
fn outer(left: vec4<f32>, right: vec4<f32>, sum: mat4x4<f32>) -> mat4x4<f32> {
    return mat4x4<f32>(
        fma(vec4<f32>(left.x), right, sum[0]),
        fma(vec4<f32>(left.y), right, sum[1]),
        fma(vec4<f32>(left.z), right, sum[2]),
        fma(vec4<f32>(left.w), right, sum[3]),
    );
}

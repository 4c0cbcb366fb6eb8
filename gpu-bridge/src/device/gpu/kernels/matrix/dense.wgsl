// The factors of a product of matrices in memory, with any strides; one product for each place of a batch.

struct Body {
    tiling: Tiling,
    // Of the batch's axes, the last ones first.
    batch_sizes: array<u32, $BATCH_AXES>,
    left_batch: array<u32, $BATCH_AXES>,
    right_batch: array<u32, $BATCH_AXES>,
    // From row to row and from column to column of each factor.
    left_strides: array<u32, 2>,
    right_strides: array<u32, 2>,
    // What `finish.wgsl` takes.
    scale: f32,
    a: f32,
    b: f32,
}

var<private> left_start: u32;
var<private> right_start: u32;

fn enter(batch: u32) {
    left_start = 0u;
    right_start = 0u;
    var rest = batch;
    for (var axis = 0u; axis < $BATCH_AXES && rest > 0u; axis++) {
        let size = parameters.body.batch_sizes[axis];
        let next = rest / size;
        let place = rest - next * size;
        left_start += place * parameters.body.left_batch[axis];
        right_start += place * parameters.body.right_batch[axis];
        rest = next;
    }
}

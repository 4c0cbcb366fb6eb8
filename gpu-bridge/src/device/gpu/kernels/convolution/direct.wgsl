// The sizes of a convolution. Channels are those of one group; pairs are down and across.

struct Body {
    groups: u32,
    inputs: u32,
    outputs: u32,
    sizes_from: array<u32, 2>,
    sizes_to: array<u32, 2>,
    kernel: array<u32, 2>,
    stride: array<u32, 2>,
    padding: array<u32, 2>,
    dilation: array<u32, 2>,
    // The rows of the result that a launch for the gradient of the weight goes through.
    rows: array<u32, 2>,
}

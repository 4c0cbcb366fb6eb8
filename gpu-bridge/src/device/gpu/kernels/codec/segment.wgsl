// A thread has a segment of the elements.

struct Body { elements: u32, segment: u32, segments: u32, shift: u32, wanted: u32 }

const BINS = 256u;

// The size of an element as a number to compare: the same for all NaN.
fn size_of(x: u32) -> u32 {
    return min(x & 0x7fffffffu, 0x7f800001u);
}

fn start_of(segment: u32) -> u32 {
    return segment * parameters.body.segment;
}

fn end_of(segment: u32) -> u32 {
    let start = start_of(segment);
    return start + min(parameters.body.segment, parameters.body.elements - start);
}

// Random bits by Philox4x32-10, four words for four elements. The stream is part of the kernel's parameters.

// The upper half of a product.
fn high_product(a: u32, b: u32) -> u32 {
    let a_low = a & 0xffffu;
    let a_high = a >> 16u;
    let b_low = b & 0xffffu;
    let b_high = b >> 16u;
    let middle = a_high * b_low + ((a_low * b_low) >> 16u);
    let rest = a_low * b_high + (middle & 0xffffu);
    return a_high * b_high + (middle >> 16u) + (rest >> 16u);
}

fn block(index: u32) -> vec4<u32> {
    var c = vec4(index, 0u, parameters.body.offset_low, parameters.body.offset_high);
    var key = vec2(parameters.body.seed_low, parameters.body.seed_high);
    for (var i = 0u; i < 10u; i++) {
        let p = high_product(0xD2511F53u, c.x);
        let q = high_product(0xCD9E8D57u, c.z);
        c = vec4(q ^ c.y ^ key.x, 0xCD9E8D57u * c.z, p ^ c.w ^ key.y, 0xD2511F53u * c.x);
        key += vec2(0x9E3779B9u, 0xBB67AE85u);
    }
    return c;
}

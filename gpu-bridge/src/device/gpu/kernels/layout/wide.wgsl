// Products that do not fit 32 bits.

// `a * b + c`, the high word first.
fn wide_product(a: u32, b: u32, c: u32) -> vec2<u32> {
    let low = (a & 0xffffu) * (b & 0xffffu);
    let middle = (a >> 16u) * (b & 0xffffu) + (low >> 16u);
    let other = (a & 0xffffu) * (b >> 16u) + (middle & 0xffffu);
    let high = (a >> 16u) * (b >> 16u) + (middle >> 16u) + (other >> 16u);
    let word = (other << 16u) | (low & 0xffffu);
    let sum = word + c;
    return vec2<u32>(high + select(0u, 1u, sum < word), sum);
}

// What is left of a number when `b` is taken from it; nothing if it is less.
fn wide_less(a: vec2<u32>, b: u32) -> vec2<u32> {
    if (a.x == 0u && a.y < b) { return vec2<u32>(0u, 0u); }
    return vec2<u32>(a.x - select(0u, 1u, a.y < b), a.y - b);
}

// The quotient, which must fit 32 bits, and the rest.
fn wide_quotient(a: vec2<u32>, divisor: u32) -> vec2<u32> {
    if (a.x == 0u) {
        let quotient = a.y / divisor;
        return vec2<u32>(quotient, a.y - quotient * divisor);
    }
    // Digit by digit. The high word is below the divisor, or the quotient would not fit.
    var rest = a.x;
    var quotient = 0u;
    for (var bit = 32u; bit > 0u; bit--) {
        let carry = rest >> 31u;
        rest = (rest << 1u) | ((a.y >> (bit - 1u)) & 1u);
        quotient = quotient << 1u;
        if (carry == 1u || rest >= divisor) {
            rest -= divisor;
            quotient |= 1u;
        }
    }
    return vec2<u32>(quotient, rest);
}

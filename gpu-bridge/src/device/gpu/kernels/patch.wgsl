// Some bytes of one word.

struct Body { word: u32, value: u32, mask: u32 }

fn run(group: u32, lane: u32) {
    if (lane == 0u) {
        let body = parameters.body;
        y_put(body.word, (y_at(body.word) & ~body.mask) | (body.value & body.mask));
    }
}

// The sum of some inputs, each times its weight, in order.

struct Body { goes_on: u32, weights: array<f32, 8> }

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    let w = parameters.body.weights;
    var sum = $TYPE();
    if (parameters.body.goes_on == 1u) { sum = y_$AT(i); }
    $ADD_ALL
    y_$PUT(i, sum);
}

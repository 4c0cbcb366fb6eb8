// One step of an optimizer: each weight, its states and its gradient, for one or four weights at a time.

struct Body {
    rate: f32,
    weight_decay: f32,
    momentum: f32,
    fresh: f32,
    decay: f32,
    fresh_square: f32,
    epsilon: f32,
    correction: f32,
}

var<private> weight: $TYPE;
var<private> gradient: $TYPE;
var<private> first: $TYPE;
var<private> second: $TYPE;

// Without decay an infinite weight does not reach the gradient.
fn decayed() -> $TYPE {
    if (parameters.body.weight_decay == 0.0) { return gradient; }
    return gradient + parameters.body.weight_decay * weight;
}

fn plain() {
    weight -= parameters.body.rate * decayed();
}

// The first step does not look at what the momentum was.
fn first_momentum() {
    first = decayed();
    weight -= parameters.body.rate * first;
}

fn first_nesterov() {
    first = decayed();
    weight -= parameters.body.rate * (first + parameters.body.momentum * first);
}

fn with_momentum() {
    first = parameters.body.momentum * first + parameters.body.fresh * decayed();
    weight -= parameters.body.rate * first;
}

fn nesterov() {
    let along = decayed();
    first = parameters.body.momentum * first + along;
    weight -= parameters.body.rate * (along + parameters.body.momentum * first);
}

fn adam_step(along: $TYPE) {
    first = parameters.body.momentum * first + parameters.body.fresh * along;
    second = parameters.body.decay * second + parameters.body.fresh_square * along * along;
    weight -= parameters.body.rate * first / (sqrt(second) * parameters.body.correction + parameters.body.epsilon);
}

fn adam() {
    adam_step(decayed());
}

// Here the decay is what the weight shrinks to.
fn adam_w() {
    weight *= parameters.body.weight_decay;
    adam_step(gradient);
}

fn rms_prop() {
    let along = decayed();
    first = parameters.body.decay * first + parameters.body.fresh_square * along * along;
    weight -= parameters.body.rate * along / (sqrt(first) + parameters.body.epsilon);
}

fn rms_prop_with_momentum() {
    let along = decayed();
    first = parameters.body.decay * first + parameters.body.fresh_square * along * along;
    second = parameters.body.momentum * second + along / (sqrt(first) + parameters.body.epsilon);
    weight -= parameters.body.rate * second;
}

fn adagrad() {
    let along = decayed();
    first += along * along;
    weight -= parameters.body.rate * along / (sqrt(first) + parameters.body.epsilon);
}

fn run(group: u32, lane: u32) {
    let i = group * $LANES + lane;
    if (i >= parameters.count) { return; }
    weight = weights_$AT(i);
    gradient = gradients_$AT(i);
    $READ_STATES
    $FUNCTION;
    weights_$PUT(i, weight);
    $WRITE_STATES
}

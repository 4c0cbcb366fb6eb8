// Sums for the gradients of shift and scale. What the activation was given is computed anew.

struct Run { mean: f32, factor: f32, shift: f32, direct: f32, along: f32 }

fn begin(result: u32, state: State) -> Run {
    let rstd = rsqrt_(variance_at(result) + parameters.body.attributes.epsilon);
    return Run(mean_at(result), rstd * scale_at(result), $SHIFT, 0.0, 0.0);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let distance = x_at(at) - run.mean;
    let dz = $ACTIVATION_back(distance * run.factor + run.shift, dy_at(at));
    return Run(run.mean, run.factor, run.shift, run.direct + dz, run.along + dz * distance);
}

fn settle(run: Run, length: u32) -> State {
    return State(run.direct, run.along, 0.0, 0.0);
}

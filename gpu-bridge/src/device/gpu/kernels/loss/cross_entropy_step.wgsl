// Sums of powers of logits, and how far the logits are below zero in all, for smoothing.

struct Run { powers: vec2<f32>, sum: f32 }

fn begin(result: u32, state: State) -> Run {
    return Run(nothing().xy, 0.0);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let x = x_at(at);
    return Run(with_power(run.powers, x), run.sum - x);
}

fn settle(run: Run, length: u32) -> State {
    return State(run.powers, run.sum, 0.0);
}

// Sums over a row: of the gradient by the normalized row, and of its product with that.

struct Run { mean: f32, rstd: f32, direct: f32, along: f32 }

fn begin(result: u32, state: State) -> Run {
    return Run(mean_at(result), rstd_at(result), 0.0, 0.0);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let g = dy_at(at) * scale_at(folded);
    return Run(run.mean, run.rstd, run.direct + g, run.along + g * ((x_at(at) - run.mean) * run.rstd));
}

fn settle(run: Run, length: u32) -> State {
    return State(run.direct, run.along, 0.0, 0.0);
}

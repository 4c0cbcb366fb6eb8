// Sums over all rows for the gradients of shift and scale. A result is a column, so what is folded is rows.

struct Run { direct: f32, along: f32 }

fn begin(result: u32, state: State) -> Run {
    return Run(0.0, 0.0);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let dy = dy_at(at);
    return Run(run.direct + dy, run.along + dy * ((x_at(at) - mean_at(folded)) * rstd_at(folded)));
}

fn settle(run: Run, length: u32) -> State {
    return State(run.direct, run.along, 0.0, 0.0);
}

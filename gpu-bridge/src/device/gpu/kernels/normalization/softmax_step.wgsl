// Sums of powers of the elements of a row that are open.

alias Run = vec2<f32>;

fn begin(result: u32, state: State) -> Run {
    return nothing().xy;
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    if ($MASKED) { return run; }
    return with_power(run, x_at(at));
}

fn settle(run: Run, length: u32) -> State {
    return State(run, 0.0, 0.0);
}

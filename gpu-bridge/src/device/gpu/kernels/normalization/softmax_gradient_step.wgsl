// The sum over a row that the gradient of each element depends on.

alias Run = f32;

fn begin(result: u32, state: State) -> Run {
    return 0.0;
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    return run + $TERM;
}

fn settle(run: Run, length: u32) -> State {
    return State(run, 0.0, 0.0, 0.0);
}

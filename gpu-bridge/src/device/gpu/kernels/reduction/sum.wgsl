// Sums of elements, or of their squares.

alias Run = f32;

fn begin(result: u32, state: State) -> Run {
    return 0.0;
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let x = x_at(at);
    return run + $TERM;
}

fn settle(run: Run, length: u32) -> State {
    return State(run, 0.0, 0.0, 0.0);
}

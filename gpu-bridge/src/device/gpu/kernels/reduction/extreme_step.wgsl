// The largest of elements, or the smallest.

alias Run = f32;

fn begin(result: u32, state: State) -> Run {
    return $NOTHING;
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    return $FURTHER(run, x_at(at));
}

fn settle(run: Run, length: u32) -> State {
    return State(run, 0.0, 0.0, 0.0);
}

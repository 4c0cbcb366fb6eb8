// Where the furthest of elements is first. A lane sees them in order.

struct Run { value: f32, index: u32 }

fn begin(result: u32, state: State) -> Run {
    return Run(0.0, 0xffffffffu);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let x = x_at(at);
    let further = run.index == 0xffffffffu || (!is_nan(run.value) && (is_nan(x) || $FURTHER(x, run.value)));
    return Run(select(run.value, x, further), select(run.index, folded, further));
}

fn settle(run: Run, length: u32) -> State {
    return State(run.value, f32(run.index >> 16u), f32(run.index & 0xffffu), 0.0);
}

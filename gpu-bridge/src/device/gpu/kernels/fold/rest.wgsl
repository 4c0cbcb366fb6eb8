// The elements are states of parts.

alias Run = vec4<f32>;

fn begin(result: u32, state: State) -> Run {
    return nothing();
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    return merge(run, from_at4(at));
}

fn settle(run: Run, length: u32) -> State {
    return run;
}

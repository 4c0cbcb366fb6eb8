// Moments of elements, in one pass. The result's first element is the number near the mean; and squares are of distances
// from the mean of earlier elements, or the first of them all, so that little cancels when those from the mean are found.

struct Run { near: f32, center: f32, sum: f32, squares: f32, centered: bool }

fn begin(result: u32, state: State) -> Run {
    let first = x_at(first_of(result));
    let near = select(first, 0.0, is_nan(first) || is_infinite(first));
    return Run(near, state.x, 0.0, 0.0, state.z > 0.0);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let x = x_at(at) - run.near;
    let center = select(x, run.center, run.centered);
    let distance = x - center;
    return Run(run.near, center, run.sum + distance, run.squares + distance * distance, true);
}

fn settle(run: Run, length: u32) -> State {
    let count = f32(length);
    let mean = run.sum / count;
    let squares = run.squares - run.sum * mean;
    return State(run.center + mean, select(squares, 0.0, squares < 0.0), count, run.near);
}

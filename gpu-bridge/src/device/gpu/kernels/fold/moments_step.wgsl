// Moments of elements, in one pass. The result's first element is the number near the mean; and squares are of distances
// from the first of a run, so that little cancels when those from the mean are found from them.

struct Run { near: f32, first: f32, sum: f32, squares: f32, started: bool }

fn begin(result: u32) -> Run {
    let first = x_at(first_of(result));
    return Run(select(first, 0.0, is_nan(first) || is_infinite(first)), 0.0, 0.0, 0.0, false);
}

fn step(run: Run, at: u32, folded: u32, result: u32) -> Run {
    let x = x_at(at) - run.near;
    let first = select(x, run.first, run.started);
    let distance = x - first;
    return Run(run.near, first, run.sum + distance, run.squares + distance * distance, true);
}

fn settle(run: Run, length: u32) -> State {
    let count = f32(length);
    let mean = run.sum / count;
    let squares = run.squares - run.sum * mean;
    return State(run.first + mean, select(squares, 0.0, squares < 0.0), count, run.near);
}

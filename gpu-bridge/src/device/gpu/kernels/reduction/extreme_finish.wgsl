fn finish(result: u32, state: State) {
    y_put(result, state.x);
}

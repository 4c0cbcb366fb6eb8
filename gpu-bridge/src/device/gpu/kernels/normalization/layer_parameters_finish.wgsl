fn finish(result: u32, state: State) {
    dshift_put(result, state.x);
    dscale_put(result, state.y);
}

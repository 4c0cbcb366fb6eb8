fn finish(result: u32, state: State) {
    y_put(result, (u32(state.y) << 16u) | u32(state.z));
}

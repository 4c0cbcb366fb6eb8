fn finish(result: u32, state: State) {
    loss_put(0u, state.x * parameters.body.attributes.factor);
}

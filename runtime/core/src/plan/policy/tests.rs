mod budget;
mod simulated;

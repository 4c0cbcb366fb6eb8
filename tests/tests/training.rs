//! Training, one binary: real components on real devices, in this process.

mod training {
    mod hostile;
}

//! Training, one binary: real components on real devices, in this process.

mod training {
    mod bits;
    mod hostile;
    mod jobs;
    mod learning;
    mod parity;
}

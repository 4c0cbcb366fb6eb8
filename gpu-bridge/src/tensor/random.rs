//! Random numbers applied to tensors.

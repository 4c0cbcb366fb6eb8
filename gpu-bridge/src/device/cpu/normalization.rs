//! Normalization of batches, layers, neighbours and rows.

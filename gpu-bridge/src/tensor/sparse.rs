//! Sparse rows (CSR), and the two steps of k-means.

//! Convolution in two dimensions and its two gradients.

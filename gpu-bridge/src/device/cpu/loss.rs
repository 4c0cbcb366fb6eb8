//! Losses, each computed together with its gradient.

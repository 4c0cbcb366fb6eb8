//! Arena.

use crate::case::{Case, Refusal};

pub fn cases() -> Vec<Case> {
    Vec::new()
}

pub fn refusals() -> Vec<Refusal> {
    Vec::new()
}

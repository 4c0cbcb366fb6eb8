//! Functions or a rented machine: what the gradients of one peer cost either way.
//!
//! The peer-to-peer paper (section V-B2, equations 1 and 2) charges a peer that calls one function for each of its `m`
//! batches `(function · m + machine) · t`, where `t` is the time until all of them are done, and a peer that computes
//! all by itself `machine · t`. Equation 1 bills every function for the slowest one. Where the durations of the functions
//! are known, the sum of what they really took is given too.

use serde::{Deserialize, Serialize};

/// How a peer computes its gradients with functions, and how without.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Functions that are called, one for each batch.
    pub functions: u32,
    /// What a second of one function costs.
    pub function_second: f64,
    /// What a second of the machine costs from which they are called.
    pub caller_second: f64,
    /// Seconds until all functions are done.
    pub serverless_seconds: f64,
    /// What a second of the machine costs that computes without functions.
    pub machine_second: f64,
    /// Seconds that it takes.
    pub machine_seconds: f64,
    /// Seconds that each function took, if that is known.
    #[serde(default)]
    pub durations: Vec<f64>,
}

/// What either way costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Equation 1: each function is paid for until the last of them is done.
    pub serverless: f64,
    /// Each function is paid for until it is done itself.
    pub serverless_by_duration: Option<f64>,
    /// Equation 2.
    pub rented: f64,
    /// How much more functions cost: [`Self::serverless`] over [`Self::rented`].
    pub dearer: f64,
    /// How much sooner they are done.
    pub faster: f64,
    /// Both in a sentence.
    pub why: String,
}

/// Compares functions with a rented machine.
pub fn compare(peer: &Peer) -> Comparison {
    let serverless = (peer.function_second * f64::from(peer.functions) + peer.caller_second) * peer.serverless_seconds;
    let rented = peer.machine_second * peer.machine_seconds;
    let serverless_by_duration = (!peer.durations.is_empty()).then(|| {
        peer.function_second * peer.durations.iter().sum::<f64>() + peer.caller_second * peer.serverless_seconds
    });
    let (dearer, faster) = (serverless / rented, peer.machine_seconds / peer.serverless_seconds);
    let why = format!(
        "{functions} functions take {:.1} s for {serverless:.5}; a rented machine takes {:.1} s for {rented:.5}: functions \
         cost {dearer:.2} times as much and are done {faster:.1} times as fast.",
        peer.serverless_seconds,
        peer.machine_seconds,
        functions = peer.functions,
    );
    Comparison { serverless, serverless_by_duration, rented, dearer, faster, why }
}

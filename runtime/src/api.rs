//! The HTTP API. The only place that names an HTTP status.
//!
//! Handlers extract, call the [`Node`](crate::node::Node), and turn the answer into JSON. Every route is listed in
//! [`router`], and every error becomes a [`Problem`] in [`problem`].

pub mod types;

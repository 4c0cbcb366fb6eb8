//! The HTTP server: clients that are slow, broken or too many, the orderly stop, what is said to a bad request, and
//! whose a node with `--dev` is.

mod clients;
mod developer;
mod drain;
mod logs;
mod requests;
mod tls;

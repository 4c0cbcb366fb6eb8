//! The HTTP server: clients that are slow, broken or too many, the orderly stop, and what is said to a bad request.

mod clients;
mod drain;
mod logs;
mod requests;
mod tls;

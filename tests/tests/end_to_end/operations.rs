//! What whoever runs a node relies on: metrics, the description of the API, backups.

mod backups;
mod description;
mod metrics;

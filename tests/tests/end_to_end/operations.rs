//! What whoever runs a node relies on: metrics, the description of the API, backups, the ledger.

mod backups;
mod description;
mod ledger;
mod metrics;

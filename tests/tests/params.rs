//! The parameter store: one suite for all backends, concurrency against a model, crashes.

mod params {
    mod backends;
    mod concurrent;
    mod crashes;
    mod model;
    mod redis;
    mod suite;
}

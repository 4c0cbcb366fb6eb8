//! Writing in place.

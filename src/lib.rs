//! Exactly one holder at a time.

pub mod election;

//! Exactly one holder at a time.

mod clock;
pub mod election;
#[cfg(unix)]
pub mod operation;

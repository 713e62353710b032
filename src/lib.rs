//! Exactly one holder at a time.

mod clock;
#[cfg(unix)]
pub mod operation;

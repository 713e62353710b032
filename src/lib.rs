//! Exactly one holder at a time.

mod clock;
mod fork;

pub mod election;
#[cfg(unix)]
pub mod operation;

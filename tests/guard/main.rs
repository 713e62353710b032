//! LeaderGuard: it keeps leadership, tells the truth locally, and fences what the leader writes.

#![cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
#[path = "../conformance/database.rs"]
mod database;

mod faults;
mod fenced;
mod leading;
mod life;
#[cfg(all(feature = "postgres", feature = "mysql"))]
mod network;
mod overlap;
mod processes;

use std::time::Duration;

use leasehold::election::{Event, LeaderGuard, Lost};

/// Longer than anything that is waited for should take, even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The next event, which must come.
#[track_caller]
pub fn next(events: &std::sync::mpsc::Receiver<Event>) -> Event {
    events.recv_timeout(PATIENCE).expect("an event")
}

/// The next loss, which must come; other news is skipped.
#[track_caller]
pub fn next_loss(events: &std::sync::mpsc::Receiver<Event>) -> Lost {
    loop {
        if let Event::Lost { cause, .. } = next(events) {
            return cause;
        }
    }
}

#[track_caller]
/// The tenure of a guard that must come to lead.
pub fn must_lead(guard: &LeaderGuard) -> leasehold::election::Tenure {
    guard.wait_until_leader(PATIENCE).expect("leadership")
}

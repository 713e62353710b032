//! For how long a lease can be relied on without asking anybody.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

use super::lease::OperationOwnerLease;
use crate::clock::BootClock;

/// The two clocks that a lease is judged by.
///
/// Others judge a lease by the wall clock, so setting that clock forward ends a lease early in their eyes; the clock since boot cannot
/// be set, and counts suspended time. Whichever says "over" first is believed.
#[derive(Clone, Debug)]
pub(super) struct Clocks {
    pub(super) boot: BootClock,
    /// Replaces the wall clock: what it showed when the boot clock was at zero.
    #[cfg(test)]
    pub(super) wall_at_boot: Option<std::sync::Arc<parking_lot::Mutex<DateTime<Utc>>>>,
}

/// Both clocks, read before an attempt begins.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    pub(super) boot: Duration,
    pub(super) wall: DateTime<Utc>,
}

impl Clocks {
    pub(super) fn system() -> Self {
        Self {
            boot: BootClock::system(),
            #[cfg(test)]
            wall_at_boot: None,
        }
    }

    pub(super) fn read(&self) -> Reading {
        let boot = self.boot.now();
        #[cfg(test)]
        if let Some(wall_at_boot) = &self.wall_at_boot {
            let wall = *wall_at_boot.lock() + boot;
            return Reading { boot, wall };
        }
        Reading {
            boot,
            wall: Utc::now(),
        }
    }
}

/// The end of the trust in one lease, by either clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trust {
    /// When the attempt began that recorded the lease.
    pub(super) since: Duration,
    boot: Duration,
    wall: DateTime<Utc>,
}

impl Trust {
    /// `start` was read before the attempt that recorded `lease`, so the record is at least this young.
    pub(super) fn new(start: Reading, duration: Duration, lease: &OperationOwnerLease) -> Self {
        let margin = duration / 10;
        Self {
            since: start.boot,
            boot: start.boot.saturating_add(duration - margin),
            wall: lease.expires_at() - margin,
        }
    }

    pub(super) fn has_ended(&self, clocks: &Clocks) -> bool {
        self.remaining(clocks).is_zero()
    }

    pub(super) fn remaining(&self, clocks: &Clocks) -> Duration {
        let now = clocks.read();
        let by_boot = self.boot.saturating_sub(now.boot);
        let by_wall = (self.wall - now.wall).to_std().unwrap_or_default();
        by_boot.min(by_wall)
    }
}

/// `by` after `now`.
pub(super) fn later(now: DateTime<Utc>, by: Duration) -> DateTime<Utc> {
    // A clock near the end of time gives an instant that no record holds, which is an error and no panic.
    TimeDelta::from_std(by)
        .ok()
        .and_then(|by| now.checked_add_signed(by))
        .unwrap_or(DateTime::<Utc>::MAX_UTC)
}

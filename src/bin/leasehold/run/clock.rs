//! The library's clock: it counts the time that the machine sleeps, and all processes of the machine read the same.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::Monotonic;

pub fn now() -> Duration {
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default()
}

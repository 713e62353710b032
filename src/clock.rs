//! Time that keeps counting while the machine sleeps.

use std::time::Duration;

#[cfg(test)]
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// A clock that never goes back and, where the system offers one, counts suspended time.
///
/// Linux and Android read `CLOCK_BOOTTIME`; on Apple systems `CLOCK_MONOTONIC` counts sleep too.
/// Elsewhere the plain monotonic clock is the fallback: a deadline then outlives a suspend, which is why
/// callers that can also consult a second clock should.
#[derive(Clone, Debug, Default)]
pub(crate) struct BootClock {
    #[cfg(test)]
    manual: Option<Arc<AtomicU64>>,
}

impl BootClock {
    /// The operating system's clock.
    pub(crate) fn system() -> Self {
        Self::default()
    }

    /// A clock that stands still until [`advance`](Self::advance) moves it; clones share its time.
    #[cfg(test)]
    pub(crate) fn manual() -> Self {
        Self {
            manual: Some(Arc::default()),
        }
    }

    /// Moves a manual clock, as work or as a suspend of the machine would.
    #[cfg(test)]
    pub(crate) fn advance(&self, by: Duration) {
        let nanos = u64::try_from(by.as_nanos()).expect("a test advances by less than 584 years");
        self.manual
            .as_ref()
            .expect("only a manual clock can be advanced")
            .fetch_add(nanos, Ordering::SeqCst);
    }

    /// The time since an arbitrary fixed point, normally the boot of the machine.
    pub(crate) fn now(&self) -> Duration {
        #[cfg(test)]
        if let Some(manual) = &self.manual {
            return Duration::from_nanos(manual.load(Ordering::SeqCst));
        }
        system_now()
    }
}

#[cfg(unix)]
fn system_now() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    #[cfg(any(target_os = "linux", target_os = "android"))]
    const CLOCK: ClockId = ClockId::Boottime;
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    const CLOCK: ClockId = ClockId::Monotonic;

    // The kernel never reports a negative time here; were it to, zero is the earliest instant there is.
    Duration::try_from(clock_gettime(CLOCK)).unwrap_or_default()
}

#[cfg(not(unix))]
fn system_now() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;

    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = BootClock::system();
        let readings: Vec<_> = (0..1000).map(|_| clock.now()).collect();
        assert!(readings.is_sorted());
        assert!(readings[0] > Duration::ZERO);
    }

    #[test]
    fn clones_of_a_manual_clock_share_its_time() {
        let clock = BootClock::manual();
        let other = clock.clone();
        clock.advance(Duration::from_secs(3600));
        assert_eq!(other.now(), Duration::from_secs(3600));
    }
}

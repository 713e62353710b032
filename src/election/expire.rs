use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ElectionError;

/// The lease duration: how long a lease or a registration lasts after the call that wrote it.
///
/// Kept in whole microseconds, the unit in which it goes to the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Expire(u64);

const MICROS_PER_SECOND: u64 = 1_000_000;
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

static PROCESS_DEFAULT: AtomicU64 = AtomicU64::new(60 * MICROS_PER_SECOND);

impl Expire {
    pub(crate) fn process_default() -> Expire {
        Expire(PROCESS_DEFAULT.load(Ordering::Relaxed))
    }

    pub(crate) fn set_process_default(expire: Expire) {
        PROCESS_DEFAULT.store(expire.0, Ordering::Relaxed);
    }

    /// What `set_expire` takes: 1 second to 365 days.
    pub(crate) fn from_secs(sec: u32) -> Result<Expire, ElectionError> {
        if sec == 0 {
            return Err(ElectionError::InvalidSetting {
                setting: "expire",
                given: "0 s".into(),
                accepted: "1 second to 365 days",
            });
        }
        Expire::from_duration(Duration::from_secs(sec.into()))
    }

    /// What the builder takes: 100 milliseconds to 365 days.
    pub(crate) fn from_duration(expire: Duration) -> Result<Expire, ElectionError> {
        if !(SHORTEST..=LONGEST).contains(&expire) {
            return Err(ElectionError::InvalidSetting {
                setting: "expire",
                given: format!("{expire:?}"),
                accepted: "100 milliseconds to 365 days",
            });
        }
        Ok(Expire(expire.as_micros() as u64))
    }

    /// The value that [`micros`](Expire::micros) gave.
    pub(crate) fn from_micros(micros: u64) -> Expire {
        Expire(micros)
    }

    pub(crate) fn micros(self) -> i64 {
        self.0 as i64
    }

    pub(crate) fn duration(self) -> Duration {
        Duration::from_micros(self.0)
    }

    /// Whether a registration with `left` microseconds to live needs no new heartbeat yet.
    ///
    /// Two thirds of it must be left, and no more than a heartbeat of today would give it: a
    /// registration from before the lease duration was shortened is not kept alive.
    pub(crate) fn still_fresh(self, left: i64) -> bool {
        left > self.micros() / 3 * 2 && left <= self.micros()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_is_accepted_and_everything_else_is_an_error() {
        for bad in [
            Duration::ZERO,
            Duration::from_nanos(1),
            Duration::from_secs(u64::MAX),
            Duration::MAX,
        ] {
            assert!(Expire::from_duration(bad).is_err(), "{bad:?}");
        }
        assert!(Expire::from_secs(0).is_err());
        assert!(Expire::from_secs(u32::MAX).is_err());
        assert_eq!(Expire::from_secs(1).unwrap().micros(), 1_000_000);
        assert_eq!(Expire::from_secs(365 * 86_400).unwrap().duration(), LONGEST);
        assert_eq!(Expire::from_duration(SHORTEST).unwrap().micros(), 100_000);
    }

    #[test]
    fn a_registration_is_fresh_for_a_third_of_its_life() {
        let expire = Expire::from_secs(3).unwrap();
        assert!(expire.still_fresh(3_000_000));
        assert!(expire.still_fresh(2_000_001));
        assert!(!expire.still_fresh(2_000_000));
        assert!(!expire.still_fresh(-1));
        assert!(!expire.still_fresh(3_000_001));
    }
}

//! The times of `run`, all of them parts of the lease.
//!
//! ```text
//!  beat sent        trusted until        killed by   lease ends
//!  |-- expire - margin --|-- TERM … KILL --|- slack -|
//! ```

use std::time::Duration;

#[derive(Debug, Clone, Copy)]
pub struct Timing {
    /// Between two renewals.
    pub beat: Duration,
    /// From the moment at which the lease is no longer trusted, and SIGTERM sent, to its end.
    pub margin: Duration,
    /// From SIGKILL to the end of the lease: for the kernel to carry it out, and for clocks that differ in speed.
    slack: Duration,
    /// How often the guard is asked.
    pub poll: Duration,
}

impl Timing {
    pub fn of(expire: Duration) -> Timing {
        let margin = (expire / 3).min(Duration::from_secs(60));
        let slack = (expire / 20).clamp(Duration::from_millis(100), Duration::from_secs(2));
        Timing {
            beat: expire / 5,
            margin,
            slack: slack.min(margin / 2),
            poll: (expire / 50).clamp(Duration::from_millis(20), Duration::from_millis(200)),
        }
    }

    /// When SIGKILL is due, for a lease that is trusted until then.
    pub fn kill_at(&self, trusted_until: Duration) -> Duration {
        trusted_until + self.margin - self.slack
    }

    /// When the warden is late, and `run` acts in its place.
    pub fn overdue_at(&self, kill_at: Duration) -> Duration {
        kill_at + self.slack / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sigkill_comes_after_sigterm_and_before_the_end_of_the_lease() {
        for expire in [1, 2, 15, 60, 3600, 365 * 86400].map(Duration::from_secs) {
            let timing = Timing::of(expire);
            let trusted_until = expire - timing.margin;
            let kill_at = timing.kill_at(trusted_until);
            assert!(
                trusted_until < kill_at && timing.overdue_at(kill_at) < expire,
                "{expire:?}"
            );
            assert!(
                timing.beat + expire / 4 + timing.margin < expire,
                "{expire:?}"
            );
        }
    }
}

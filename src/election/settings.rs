use std::time::Duration;

use super::ElectionError;
use super::retry::jittered;

/// The times of one guard, checked against each other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub expire: Duration,
    pub beat: Duration,
    pub attempt: Duration,
    pub margin: Duration,
    pub jitter: Duration,
    pub once: bool,
}

impl Settings {
    /// What follows from the lease duration alone.
    pub(crate) fn for_lease(expire: Duration) -> Settings {
        Settings {
            expire,
            beat: expire / 3,
            attempt: (expire / 4).min(Duration::from_secs(10)),
            margin: (expire / 10).min(Duration::from_secs(5)),
            jitter: expire / 30,
            once: false,
        }
    }

    /// Every relation has its own message; nothing is opened before all hold.
    pub(crate) fn check(&self) -> Result<(), ElectionError> {
        let slack = [self.attempt, self.margin]
            .into_iter()
            .try_fold(self.beat, |sum, part| sum.checked_add(part));
        let rules = [
            (
                "beat",
                self.beat,
                self.beat >= Duration::from_millis(1),
                "at least 1 millisecond",
            ),
            (
                "beat",
                self.beat,
                self.beat <= self.expire / 3,
                "at most a third of expire",
            ),
            (
                "attempt_timeout",
                self.attempt,
                self.attempt >= (self.expire / 20).min(Duration::from_secs(1)),
                "at least a twentieth of expire, or a second",
            ),
            (
                "margin",
                self.margin,
                self.margin >= Duration::from_millis(5),
                "at least 5 milliseconds",
            ),
            (
                "margin",
                self.margin,
                self.margin <= self.expire / 3,
                "at most a third of expire",
            ),
            (
                "jitter",
                self.jitter,
                self.jitter <= self.beat / 2,
                "at most half of beat",
            ),
            (
                "attempt_timeout",
                self.attempt,
                slack.is_some_and(|slack| slack < self.expire),
                "so short that beat + attempt_timeout + margin is less than expire",
            ),
        ];
        match rules.into_iter().find(|(_, _, holds, _)| !holds) {
            None => Ok(()),
            Some((setting, given, _, accepted)) => Err(ElectionError::InvalidSetting {
                setting,
                given: format!("{given:?}"),
                accepted,
            }),
        }
    }

    /// The one formula: trusted until = start of the beat + expire - margin.
    pub(crate) fn trusted_until(&self, began: Duration) -> Duration {
        began + self.expire - self.margin
    }

    /// The time to the next beat: early by up to the jitter, never late.
    pub(crate) fn next_beat(&self) -> Duration {
        if self.jitter.is_zero() {
            return self.beat;
        }
        // `jittered` gives half to all of what it is given.
        self.beat + self.jitter - 2 * jittered(self.jitter)
    }

    /// Another session has the row just now, and usually not for long.
    pub(crate) fn pause_when_busy(&self) -> Duration {
        self.pause_after_failure().min(Duration::from_millis(50))
    }

    pub(crate) fn pause_after_failure(&self) -> Duration {
        (self.beat / 8).clamp(Duration::from_millis(1), Duration::from_secs(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(settings: Settings) -> String {
        settings.check().unwrap_err().to_string()
    }

    #[test]
    fn what_follows_from_the_lease_holds_for_every_lease() {
        for millis in [100, 101, 333, 1000, 5000, 60_000, 31_536_000_000] {
            Settings::for_lease(Duration::from_millis(millis))
                .check()
                .unwrap();
        }
    }

    #[test]
    fn each_broken_relation_has_a_message_of_its_own() {
        let good = Settings::for_lease(Duration::from_secs(9));
        let second = Duration::from_secs(1);
        let broken = [
            Settings {
                beat: Duration::ZERO,
                jitter: Duration::ZERO,
                ..good
            },
            Settings {
                beat: 4 * second,
                ..good
            },
            Settings {
                attempt: Duration::ZERO,
                ..good
            },
            Settings {
                margin: 4 * second,
                ..good
            },
            Settings {
                jitter: 2 * second,
                ..good
            },
            Settings {
                attempt: 6 * second,
                ..good
            },
            Settings {
                attempt: Duration::MAX,
                ..good
            },
            Settings {
                beat: Duration::MAX,
                ..good
            },
        ];
        let messages = broken.map(refused);
        assert!(messages[0].contains("beat = 0ns") && messages[0].contains("1 millisecond"));
        assert!(messages[1].contains("beat = 4s") && messages[1].contains("a third of expire"));
        assert!(messages[2].contains("attempt_timeout"));
        assert!(messages[3].contains("margin"));
        assert!(messages[4].contains("jitter"));
        assert!(messages[5].contains("beat + attempt_timeout + margin"));
        assert!(messages[6].contains("beat + attempt_timeout + margin"));
    }

    #[test]
    fn a_beat_is_early_by_no_more_than_the_jitter_and_never_late() {
        let settings = Settings::for_lease(Duration::from_secs(9));
        for _ in 0..1000 {
            let next = settings.next_beat();
            assert!(
                next <= settings.beat && next >= settings.beat - settings.jitter,
                "{next:?}"
            );
        }
    }
}

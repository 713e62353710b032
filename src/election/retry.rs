//! Trying again while another session is in the way, inside a time budget.

use std::time::{Duration, Instant};

use uuid::Uuid;

use super::classify::Class;
use super::{ElectionError, Expire};

const FIRST_PAUSE: Duration = Duration::from_millis(1);

/// How often an error that is not known to be contention is tried again.
const TRIES_IN_DOUBT: u32 = 3;

/// How long one call may take while it is in the way of others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Budget(Duration);

impl Budget {
    /// A quarter of the lease, so that a renewal that fails leaves time for two more; at least
    /// `floor`, since waiting longer costs a call nothing but time.
    pub(crate) fn for_lease(expire: Expire, floor: Duration) -> Budget {
        let longest = Duration::from_secs(10);
        Budget((expire.duration() / 4).clamp(floor, longest))
    }

    pub(crate) fn exactly(time: Duration) -> Budget {
        Budget(time)
    }

    /// The attempts grow apart to `longest_pause`.
    pub(crate) fn start(self, longest_pause: Duration) -> Attempts {
        Attempts {
            started: Instant::now(),
            budget: self.0,
            pause: FIRST_PAUSE,
            longest_pause,
            tries: 0,
        }
    }
}

/// The attempts of one call.
pub(crate) struct Attempts {
    started: Instant,
    budget: Duration,
    pause: Duration,
    longest_pause: Duration,
    tries: u32,
}

impl Attempts {
    /// Pauses before another attempt, or gives `error` back when there shall be none.
    ///
    /// Inside an open transaction of the caller only a locked row is waited for: any other error
    /// may have ended that transaction, and only the caller can begin it anew.
    pub(crate) fn pause_or_give_up(
        &mut self,
        error: ElectionError,
        in_transaction: bool,
    ) -> Result<(), ElectionError> {
        self.tries += 1;
        let again = match (&error, error.class()) {
            (ElectionError::LockTimeout { .. }, _) => true,
            (_, Some(Class::Contention)) => !in_transaction,
            (_, Some(Class::Unknown)) => !in_transaction && self.tries < TRIES_IN_DOUBT,
            _ => false,
        };
        if !again {
            return Err(error);
        }
        self.pause_or_time_out(error)
    }

    /// Pauses before another attempt, or gives `error` back when the time is spent.
    pub(crate) fn pause_or_time_out(&mut self, error: ElectionError) -> Result<(), ElectionError> {
        let pause = jittered(self.pause);
        if self.started.elapsed() + pause > self.budget {
            return Err(self.with_time(error));
        }
        std::thread::sleep(pause);
        self.pause = (self.pause * 2).min(self.longest_pause);
        Ok(())
    }

    /// Time left in the budget.
    pub(crate) fn left(&self) -> Duration {
        self.budget.saturating_sub(self.spent())
    }

    pub(crate) fn spent(&self) -> Duration {
        self.started.elapsed()
    }

    fn with_time(&self, error: ElectionError) -> ElectionError {
        match error {
            ElectionError::LockTimeout { ns, .. } => ElectionError::LockTimeout {
                ns,
                waited: self.started.elapsed(),
            },
            other => other,
        }
    }
}

/// Between half of `pause` and all of it, so that those who collided do not meet again.
pub(crate) fn jittered(pause: Duration) -> Duration {
    let random = (Uuid::new_v4().as_u128() & 0xffff) as u32;
    pause / 2 + pause / 2 * random / 0xffff
}

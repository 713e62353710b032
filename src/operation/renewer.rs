//! The background half of a supervised run.

use std::thread;
use std::time::Duration;

use chrono::TimeDelta;

use super::hold::{HeldOperation, OperationLoss};
use super::lease::OperationOwnerLease;
use super::observation::OperationLeaseResult;
use super::repository::OperationLeaseRepository;
use super::trust::{Reading, Trust, later};

/// Renews every third of a lease until the work ends or the lease is lost.
pub(super) struct Renewer<'a, R> {
    repository: &'a R,
    duration: Duration,
    held: &'a HeldOperation,
    /// A renewal whose outcome is not known: it counts as not done until the record says otherwise.
    doubtful: Option<(OperationOwnerLease, Trust)>,
}

impl<'a, R: OperationLeaseRepository> Renewer<'a, R> {
    pub(super) fn new(repository: &'a R, duration: Duration, held: &'a HeldOperation) -> Self {
        Self {
            repository,
            duration,
            held,
            doubtful: None,
        }
    }

    pub(super) fn run(mut self) {
        let _fail_closed = FailClosed(self.held);
        let beat = self.duration / 3;
        let retry = self.duration / 20;
        // Counted from the beginnings of attempts, so that slow attempts do not stretch the beat.
        let mut due = self.held.state.lock().trust.since + beat;
        while self.wait_until(due) {
            let start = self.held.clocks.read();
            due = start.boot + if self.renew(start) { beat } else { retry };
        }
    }

    /// Waits for the next beat; false when there is none to come.
    fn wait_until(&self, due: Duration) -> bool {
        loop {
            {
                let mut state = self.held.state.lock();
                if state.stopped || self.held.settle(&mut state).is_some() {
                    return false;
                }
            }
            match due.saturating_sub(self.held.clocks.read().boot) {
                Duration::ZERO => return true,
                left => self.held.nap(left, |state| state.stopped),
            }
        }
    }

    /// One attempt; whether the lease is known to be renewed.
    fn renew(&mut self, start: Reading) -> bool {
        let current = self.held.lease();
        // A wall clock that was set back cannot shorten the lease, and a renewal has to lengthen it.
        let expires_at =
            later(start.wall, self.duration).max(current.expires_at() + TimeDelta::microseconds(1));
        let Ok(successor) = current.with_expiry(expires_at) else {
            return false;
        };
        let trust = Trust::new(start, self.duration, &successor);
        let answer = self
            .repository
            .compare_and_swap(&current, &successor, start.wall);
        match answer {
            Ok(OperationLeaseResult::Renewed { current, .. }) => self.adopt(current, trust),
            Ok(OperationLeaseResult::OwnerLost { current: found, .. }) => {
                match self.doubtful.take() {
                    Some((lease, trust)) if found.as_ref() == Some(&lease) => {
                        self.adopt(lease, trust);
                        false
                    }
                    _ => {
                        let current = found.map(Box::new);
                        let mut state = self.held.state.lock();
                        self.held.settle(&mut state);
                        self.held
                            .lose(&mut state, OperationLoss::Superseded { current });
                        false
                    }
                }
            }
            // An error, or a clock so wrong that the law refuses: time will tell, by running out.
            _ => {
                self.doubtful = Some((successor, trust));
                false
            }
        }
    }

    /// Takes a renewed lease over, unless the time of the old one has run out meanwhile.
    fn adopt(&mut self, lease: OperationOwnerLease, trust: Trust) -> bool {
        self.doubtful = None;
        let mut state = self.held.state.lock();
        // Also after a lapse: this is the lease that has to be released in the end.
        state.lease = lease;
        if self.held.settle(&mut state).is_some() {
            return false;
        }
        state.trust = trust;
        self.held.changed.notify_all();
        true
    }
}

/// Makes a panic of the renewing thread a loss, at once.
struct FailClosed<'a>(&'a HeldOperation);

impl Drop for FailClosed<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let mut state = self.0.state.lock();
            self.0.lose(&mut state, OperationLoss::RenewalPanicked);
        }
    }
}

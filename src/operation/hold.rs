//! The lease of a running operation, as its work sees it.

use std::fmt;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::lease::OperationOwnerLease;
use super::trust::{Clocks, Trust};

/// The longest that a waiting thread relies on the plain monotonic clock, which stands still in a suspend.
const LONGEST_NAP: Duration = Duration::from_millis(250);

/// How a running operation lost its lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OperationLoss {
    /// No renewal arrived before the lease could no longer be trusted.
    #[error("the operation's lease lapsed before it could be renewed")]
    Lapsed,
    /// Something else is recorded for the scope.
    #[error("the operation's lease was superseded")]
    Superseded {
        /// The lease recorded instead, if any.
        current: Option<Box<OperationOwnerLease>>,
    },
    /// The renewing thread ended by a panic.
    #[error("the thread that renews the operation's lease panicked")]
    RenewalPanicked,
    /// This is a forked copy of the process that holds the lease.
    #[error("the operation's lease belongs to the process that this one was forked from")]
    Forked,
}

/// The lease of a running operation, as its work sees it.
pub struct HeldOperation {
    pub(super) state: Mutex<State>,
    pub(super) changed: Condvar,
    pub(super) clocks: Clocks,
    process: u32,
}

pub(super) struct State {
    pub(super) lease: OperationOwnerLease,
    pub(super) trust: Trust,
    pub(super) loss: Option<OperationLoss>,
    pub(super) stopped: bool,
}

impl HeldOperation {
    pub(super) fn new(lease: OperationOwnerLease, trust: Trust, clocks: Clocks) -> Self {
        Self {
            state: Mutex::new(State {
                lease,
                trust,
                loss: None,
                stopped: false,
            }),
            changed: Condvar::new(),
            clocks,
            process: std::process::id(),
        }
    }

    /// Whether the lease is still held: local, without I/O. Once false, it stays false.
    pub fn is_held(&self) -> bool {
        self.loss().is_none()
    }

    /// `Ok` while the lease is held, so that work can stop with `?`.
    ///
    /// # Errors
    ///
    /// How the lease was lost.
    pub fn ensure_held(&self) -> Result<(), OperationLoss> {
        self.loss().map_or(Ok(()), Err)
    }

    /// How the lease was lost, if it was.
    pub fn loss(&self) -> Option<OperationLoss> {
        if self.is_forked() {
            return Some(OperationLoss::Forked);
        }
        self.settle(&mut self.state.lock())
    }

    pub(super) fn is_forked(&self) -> bool {
        std::process::id() != self.process
    }

    /// For how long the lease can be trusted without a further renewal; zero once it is lost.
    pub fn remaining(&self) -> Duration {
        match self.loss() {
            None => self.state.lock().trust.remaining(&self.clocks),
            Some(_) => Duration::ZERO,
        }
    }

    /// The lease as last renewed: what a journal shows to
    /// [`require_live_exact`](super::LockedOperationLeases::require_live_exact).
    pub fn lease(&self) -> OperationOwnerLease {
        self.state.lock().lease.clone()
    }

    /// Waits until the lease is lost, at most for `timeout`; `None` when it is still held then.
    ///
    /// The one loss ends every wait at once, in every thread.
    pub fn wait_lost(&self, timeout: Duration) -> Option<OperationLoss> {
        let start = self.clocks.read().boot;
        loop {
            if let Some(loss) = self.loss() {
                return Some(loss);
            }
            let waited = self.clocks.read().boot.saturating_sub(start);
            let left = timeout.checked_sub(waited).filter(|left| !left.is_zero())?;
            self.nap(left, |_| false);
        }
    }

    /// Sleeps until something changes, the trust may have ended, or `at_most` is over.
    pub(super) fn nap(&self, at_most: Duration, unless: impl FnOnce(&State) -> bool) {
        let mut state = self.state.lock();
        if state.loss.is_none() && !unless(&state) {
            let left = state.trust.remaining(&self.clocks);
            // At least a little, lest a fraction that the timer rounds to nothing make this spin.
            let nap = at_most
                .min(left)
                .min(LONGEST_NAP)
                .max(Duration::from_micros(100));
            self.changed.wait_for(&mut state, nap);
        }
    }

    /// The loss, after noticing whether time has run out. This makes a lapse final whoever notices it first.
    pub(super) fn settle(&self, state: &mut State) -> Option<OperationLoss> {
        if state.loss.is_none() && !state.stopped && state.trust.has_ended(&self.clocks) {
            self.lose(state, OperationLoss::Lapsed);
        }
        state.loss.clone()
    }

    pub(super) fn lose(&self, state: &mut State, loss: OperationLoss) {
        state.loss.get_or_insert(loss);
        self.changed.notify_all();
    }
}

impl fmt::Debug for HeldOperation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldOperation")
            .field("lease", &self.lease())
            .field("loss", &self.loss())
            .finish_non_exhaustive()
    }
}

/// Tells the renewer that the work has ended, however it ended.
pub(super) struct Stop<'a>(pub(super) &'a HeldOperation);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        self.0.settle(&mut state);
        state.stopped = true;
        self.0.changed.notify_all();
    }
}

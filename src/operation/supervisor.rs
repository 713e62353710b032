//! Running an operation under a lease that is renewed for as long as it runs.

use std::io;
use std::thread;
use std::time::Duration;

use super::error::OperationLeaseError;
use super::hold::{HeldOperation, OperationLoss, Stop};
use super::id::{OperationConflictScopeReference, OperationId, OperationLeaseToken, OwnerId};
use super::lease::OperationOwnerLease;
use super::observation::OperationLeaseResult;
use super::renewer::Renewer;
use super::repository::OperationLeaseRepository;
use super::trust::{Clocks, Trust, later};

const DEFAULT_LEASE: Duration = Duration::from_secs(30);
const MIN_LEASE: Duration = Duration::from_millis(100);
const MAX_LEASE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Runs operations one at a time per conflict scope, each under a lease renewed from a background thread.
///
/// The lease is trusted until `start of the last renewal + lease - lease / 10`, by a clock that counts suspended time, and no later
/// than that by the wall clock either. Whatever keeps a renewal from arriving (a stuck disk, a lock held by others, a paused
/// process, a changed clock), the work is told before another owner may begin. A lost lease never comes back to life.
///
/// ```
/// use leasehold::operation::{OperationId, OperationLeaseFilesystemRepository, OperationRun, OperationSupervisor};
///
/// # let directory = tempfile::tempdir()?;
/// # let storage_root = directory.path();
/// let supervisor = OperationSupervisor::new(OperationLeaseFilesystemRepository::new(storage_root));
/// let run = supervisor.run(&[7; 32].into(), &OperationId::random(), |held| {
///     let mut steps = 0;
///     while steps < 3 && held.is_held() {
///         steps += 1;
///     }
///     steps
/// })?;
/// assert!(matches!(run, OperationRun::Completed { value: 3 }));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OperationSupervisor<R> {
    repository: R,
    owner_id: Option<OwnerId>,
    lease: Duration,
    clocks: Clocks,
}

/// How a supervised run ended.
#[derive(Debug)]
#[must_use]
pub enum OperationRun<T> {
    /// The work did not run: another owner's lease is live.
    Busy {
        /// The lease in the way.
        current: OperationOwnerLease,
    },
    /// The work ran, held the lease throughout, and the lease was released.
    Completed {
        /// What the work returned.
        value: T,
    },
    /// The work ran and held the lease throughout, but it could not be released: it stays until it expires.
    Unreleased {
        /// What the work returned.
        value: T,
        /// Why it was not released.
        error: OperationLeaseError,
    },
    /// The lease was lost before the work had returned: part of the work may have overlapped with another owner's.
    Lost {
        /// What the work returned.
        value: T,
        /// How the lease was lost.
        cause: OperationLoss,
    },
}

impl<R: OperationLeaseRepository + Sync> OperationSupervisor<R> {
    /// A supervisor over a repository, with leases of 30 seconds and a new owner for every run.
    pub fn new(repository: R) -> Self {
        Self {
            repository,
            owner_id: None,
            lease: DEFAULT_LEASE,
            clocks: Clocks::system(),
        }
    }

    /// Sets the owner named in the leases.
    ///
    /// A takeover demands another owner, so a run cannot take over an expired lease of this same owner.
    ///
    /// Defaults to a new random owner for every run.
    pub fn owner_id(mut self, owner_id: OwnerId) -> Self {
        self.owner_id = Some(owner_id);
        self
    }

    /// Sets how long a lease lives without renewal: the time others wait after a crash. It is renewed every third of it.
    ///
    /// Defaults to 30 seconds.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::Setting`] outside 100 milliseconds to 365 days.
    pub fn lease(mut self, lease: Duration) -> Result<Self, OperationLeaseError> {
        if !(MIN_LEASE..=MAX_LEASE).contains(&lease) {
            return Err(OperationLeaseError::Setting {
                setting: "lease",
                value: lease,
                min: MIN_LEASE,
                max: MAX_LEASE,
            });
        }
        self.lease = lease;
        Ok(self)
    }

    /// Acquires the scope, or takes it over from an expired lease, and runs `work` while it is held.
    ///
    /// `work` runs on the calling thread and should stop soon after [`HeldOperation::is_held`] turns false. The lease is released
    /// after it has returned, also when it panics; the panic then goes on.
    ///
    /// # Errors
    ///
    /// Those of the repository's `acquire` and `compare_and_swap`, [`OperationLeaseError::Lapsed`] when taking the lease needed longer
    /// than the lease lives, and [`OperationLeaseError::Io`] when no thread can be started. `work` has not run then.
    pub fn run<T>(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        work: impl FnOnce(&HeldOperation) -> T,
    ) -> Result<OperationRun<T>, OperationLeaseError> {
        let (lease, trust) = match self.begin(scope_ref, operation_id)? {
            Ok(begun) => begun,
            Err(current) => return Ok(OperationRun::Busy { current }),
        };
        let held = HeldOperation::new(lease, trust, self.clocks.clone());
        let release = Release {
            supervisor: self,
            held: &held,
        };
        let (value, loss) = thread::scope(|scope| {
            let stop = Stop(&held);
            let renewer = thread::Builder::new()
                .name("leasehold-operation".to_owned())
                .spawn_scoped(scope, || {
                    Renewer::new(&self.repository, self.lease, &held).run()
                })
                .map_err(|source| cannot_start(source, scope_ref))?;
            let value = work(&held);
            // Judged before the renewing stops: whatever happens afterwards cannot have hurt the work.
            let loss = held.loss();
            drop(stop);
            // Its panic is a loss, already told.
            let _ = renewer.join();
            Ok::<_, OperationLeaseError>((value, loss))
        })?;
        let released = release.now();
        Ok(match (loss, released) {
            (Some(cause), _) => OperationRun::Lost { value, cause },
            (None, Ok(())) => OperationRun::Completed { value },
            (None, Err(error)) => OperationRun::Unreleased { value, error },
        })
    }

    /// Takes the scope, or says whose it is.
    fn begin(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
    ) -> Result<Result<(OperationOwnerLease, Trust), OperationOwnerLease>, OperationLeaseError>
    {
        let owner_id = self.owner_id.unwrap_or_else(OwnerId::random);
        let token = OperationLeaseToken::random();
        let candidate = |now| {
            let expires_at = later(now, self.lease);
            OperationOwnerLease::new(*operation_id, *scope_ref, owner_id, token, now, expires_at)
        };
        // Every further round means that another owner came or went in between.
        loop {
            let start = self.clocks.read();
            let result = self
                .repository
                .acquire(&candidate(start.wall)?, start.wall)?;
            let (result, start) = match result {
                OperationLeaseResult::Expired { predecessor } => {
                    let start = self.clocks.read();
                    let successor = candidate(start.wall)?;
                    let swap =
                        self.repository
                            .compare_and_swap(&predecessor, &successor, start.wall);
                    (swap?, start)
                }
                other => (other, start),
            };
            match result {
                OperationLeaseResult::Acquired { current }
                | OperationLeaseResult::TakenOver { current, .. } => {
                    let trust = Trust::new(start, self.lease, &current);
                    if trust.has_ended(&self.clocks) {
                        let _ = self.repository.release(&current, self.clocks.read().wall);
                        return Err(OperationLeaseError::Lapsed { lease: self.lease });
                    }
                    return Ok(Ok((current, trust)));
                }
                OperationLeaseResult::Conflict { current } => return Ok(Err(current)),
                _ => {}
            }
        }
    }
}

fn cannot_start(
    source: io::Error,
    scope_ref: &OperationConflictScopeReference,
) -> OperationLeaseError {
    OperationLeaseError::Io {
        action: "start the renewing thread for",
        path: scope_ref.to_string().into(),
        source,
    }
}

/// Releases the lease once, by then or when unwinding. Declared before the renewer starts, so it runs after its end.
struct Release<'a, R: OperationLeaseRepository + Sync> {
    supervisor: &'a OperationSupervisor<R>,
    held: &'a HeldOperation,
}

impl<R: OperationLeaseRepository + Sync> Release<'_, R> {
    fn now(self) -> Result<(), OperationLeaseError> {
        let release = std::mem::ManuallyDrop::new(self);
        release.attempt()
    }

    fn attempt(&self) -> Result<(), OperationLeaseError> {
        // A forked copy of this process must not give up what its parent holds.
        if self.held.is_forked() {
            return Ok(());
        }
        let lease = self.held.lease();
        let repository = &self.supervisor.repository;
        let now = || self.supervisor.clocks.read().wall.max(lease.acquired_at());
        match repository.release(&lease, now())? {
            // A renewal whose outcome was unknown has happened after all: the token proves that it is ours.
            OperationLeaseResult::OwnerLost {
                current: Some(current),
                ..
            } if current.token() == lease.token() => repository.release(&current, now()).map(drop),
            _ => Ok(()),
        }
    }
}

impl<R: OperationLeaseRepository + Sync> Drop for Release<'_, R> {
    fn drop(&mut self) {
        let _ = self.attempt();
    }
}

#[cfg(test)]
#[path = "supervisor_tests.rs"]
mod tests;

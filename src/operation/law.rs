//! The transition law: pure, without I/O and without a clock.
//!
//! Leases hold whole microseconds, so the time of observation is cut to them, too, before anything is compared.

use chrono::{DateTime, SubsecRound, Utc};

use super::error::TransitionFault;
use super::lease::OperationOwnerLease;
use super::observation::{OperationLeaseObservation, OperationLeaseResult};

/// What a caller asks of the record of one conflict scope.
#[derive(Clone, Copy, Debug)]
pub enum OperationLeaseRequest<'a> {
    /// Take the scope if nobody holds it.
    Acquire {
        /// The lease to be recorded.
        candidate: &'a OperationOwnerLease,
    },
    /// Renew the exact live lease, or take over the exact expired one.
    CompareAndSwap {
        /// The lease that must be recorded now.
        predecessor: &'a OperationOwnerLease,
        /// The lease to be recorded.
        successor: &'a OperationOwnerLease,
    },
    /// Give up the exact lease, live or expired.
    Release {
        /// The lease that must be recorded now.
        predecessor: &'a OperationOwnerLease,
    },
}

/// Judges a request against the lease that is recorded for its scope.
///
/// This is the whole law, for every adapter: record what
/// [`to_record`](OperationLeaseResult::to_record) says, under the lock under which `recorded` was read, and the result is true.
///
/// A request that loses to what is recorded gets a result, whatever the times say: a caller that read its clock and then
/// waited for the lock must not be told that it made a mistake. A request that would win is held to the letter.
///
/// # Errors
///
/// The part of the law that a request breaks; nothing may be recorded then.
pub fn decide(
    request: OperationLeaseRequest<'_>,
    recorded: Option<&OperationOwnerLease>,
    observed_at: DateTime<Utc>,
) -> Result<OperationLeaseResult, TransitionFault> {
    let observed_at = observed_at.trunc_subsecs(6);
    match request {
        OperationLeaseRequest::Acquire { candidate } => match recorded {
            Some(current) if observed_at < current.expires_at() => {
                Ok(OperationLeaseResult::Conflict {
                    current: current.clone(),
                })
            }
            Some(expired) => Ok(OperationLeaseResult::Expired {
                predecessor: expired.clone(),
            }),
            None => {
                begins_now(candidate, observed_at)?;
                Ok(OperationLeaseResult::Acquired {
                    current: candidate.clone(),
                })
            }
        },
        OperationLeaseRequest::CompareAndSwap {
            predecessor,
            successor,
        } => {
            if predecessor.scope_ref() != successor.scope_ref() {
                return Err(TransitionFault::ScopeChanged);
            }
            if recorded != Some(predecessor) {
                return Ok(lost(predecessor, recorded));
            }
            not_before(predecessor, observed_at)?;
            let (predecessor, current) = (predecessor.clone(), successor.clone());
            if observed_at < predecessor.expires_at() {
                renews(&predecessor, &current)?;
                Ok(OperationLeaseResult::Renewed {
                    predecessor,
                    current,
                })
            } else {
                takes_over(&predecessor, &current, observed_at)?;
                Ok(OperationLeaseResult::TakenOver {
                    predecessor,
                    current,
                })
            }
        }
        OperationLeaseRequest::Release { predecessor } => {
            if recorded != Some(predecessor) {
                return Ok(lost(predecessor, recorded));
            }
            not_before(predecessor, observed_at)?;
            Ok(OperationLeaseResult::Released {
                predecessor: predecessor.clone(),
            })
        }
    }
}

/// Says what the recorded lease is at an instant.
///
/// # Errors
///
/// [`TransitionFault::ObservedBeforeAcquisition`] when the lease was acquired after that instant: the record says nothing about
/// the time before.
pub fn observe(
    recorded: Option<&OperationOwnerLease>,
    observed_at: DateTime<Utc>,
) -> Result<OperationLeaseObservation, TransitionFault> {
    let Some(current) = recorded else {
        return Ok(OperationLeaseObservation::Absent);
    };
    let observed_at = observed_at.trunc_subsecs(6);
    not_before(current, observed_at)?;
    let current = current.clone();
    Ok(if observed_at < current.expires_at() {
        OperationLeaseObservation::Active { current }
    } else {
        OperationLeaseObservation::Expired { current }
    })
}

fn lost(
    predecessor: &OperationOwnerLease,
    recorded: Option<&OperationOwnerLease>,
) -> OperationLeaseResult {
    OperationLeaseResult::OwnerLost {
        predecessor: predecessor.clone(),
        current: recorded.cloned(),
    }
}

fn require(condition: bool, otherwise: TransitionFault) -> Result<(), TransitionFault> {
    if condition { Ok(()) } else { Err(otherwise) }
}

fn not_before(
    lease: &OperationOwnerLease,
    observed_at: DateTime<Utc>,
) -> Result<(), TransitionFault> {
    require(
        lease.acquired_at() <= observed_at,
        TransitionFault::ObservedBeforeAcquisition,
    )
}

// A lease that begins at the observation is live at it: no lease expires before it begins.
fn begins_now(
    lease: &OperationOwnerLease,
    observed_at: DateTime<Utc>,
) -> Result<(), TransitionFault> {
    require(
        lease.acquired_at() == observed_at,
        TransitionFault::NotAcquiredAtObservation,
    )
}

fn renews(old: &OperationOwnerLease, new: &OperationOwnerLease) -> Result<(), TransitionFault> {
    require(
        new.operation_id() == old.operation_id(),
        TransitionFault::RenewalChangesOperation,
    )?;
    require(
        new.owner_id() == old.owner_id(),
        TransitionFault::RenewalChangesOwner,
    )?;
    require(
        new.token() == old.token(),
        TransitionFault::RenewalChangesToken,
    )?;
    require(
        new.acquired_at() == old.acquired_at(),
        TransitionFault::RenewalChangesAcquisition,
    )?;
    require(
        new.expires_at() > old.expires_at(),
        TransitionFault::RenewalDoesNotExtend,
    )
}

fn takes_over(
    old: &OperationOwnerLease,
    new: &OperationOwnerLease,
    observed_at: DateTime<Utc>,
) -> Result<(), TransitionFault> {
    require(
        new.owner_id() != old.owner_id(),
        TransitionFault::TakeoverKeepsOwner,
    )?;
    require(
        new.token() != old.token(),
        TransitionFault::TakeoverKeepsToken,
    )?;
    begins_now(new, observed_at)
}

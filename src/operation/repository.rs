//! The port of owner leases, and its adapter on the file system.

use std::path::PathBuf;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::error::{OperationLeaseError, TransitionFault};
use super::id::{OperationConflictScopeReference, OperationId};
use super::law::{OperationLeaseRequest, decide, observe};
use super::lease::{OperationOwnerLease, checked};
use super::observation::{OperationLeaseObservation, OperationLeaseResult};
use super::record::Record;
use super::storage::OperationLeaseStorage;

/// Where owner leases are kept: four calls, and the caller gives the clock.
///
/// An adapter decides by [`decide`] and [`observe`], and must record what a result says, exclusively and durably, before it
/// returns the result.
pub trait OperationLeaseRepository {
    /// Says whether a scope is free, held, or held by an expired lease at `observed_at`.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::ObservedBeforeAcquisition`] when the recorded lease begins after `observed_at`, or what keeps the adapter
    /// from reading.
    fn inspect(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseObservation, OperationLeaseError>;

    /// Acquires an absent lease only: `Acquired`, else `Conflict` or `Expired`, and what is there stays unchanged.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::NotAcquiredAtObservation`] unless the candidate begins at `observed_at`, or what keeps the adapter from
    /// recording it.
    fn acquire(
        &self,
        candidate: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError>;

    /// Renews the exact live lease (`Renewed`) or takes over the exact expired one (`TakenOver`); `OwnerLost` when the predecessor
    /// is not what is recorded.
    ///
    /// A renewal keeps operation, owner, token and `acquired_at`, and expires later. A takeover has a new owner and a new token, and
    /// begins at `observed_at`; it may be for another operation of the scope.
    ///
    /// # Errors
    ///
    /// The [`TransitionFault`] of a successor that breaks this law, or what keeps the adapter from recording it.
    fn compare_and_swap(
        &self,
        predecessor: &OperationOwnerLease,
        successor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError>;

    /// Releases the exact recorded lease, live or expired (`Released`), else `OwnerLost`.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::ObservedBeforeAcquisition`], or what keeps the adapter from recording it.
    fn release(
        &self,
        predecessor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError>;
}

/// Durable owner leases in a directory of one machine. Clones share their storage.
///
/// Each call takes the repository lock, so it may wait for as long as the lock timeout, and returns after the record is on disk.
/// Times finer than a microsecond are cut towards the past before anything is compared.
///
/// ```
/// use chrono::{TimeDelta, Utc};
/// use leasehold::operation::{
///     OperationId, OperationLeaseFilesystemRepository, OperationLeaseResult, OperationLeaseToken, OperationOwnerLease, OwnerId,
/// };
///
/// # let directory = tempfile::tempdir()?;
/// # let storage_root = directory.path();
/// let leases = OperationLeaseFilesystemRepository::new(storage_root);
/// let now = Utc::now();
/// let mine = OperationOwnerLease::new(
///     OperationId::random(),
///     [7; 32].into(),
///     OwnerId::random(),
///     OperationLeaseToken::random(),
///     now,
///     now + TimeDelta::seconds(30),
/// )?;
/// if let OperationLeaseResult::Acquired { .. } = leases.acquire(&mine, now)? {
///     let longer = mine.with_expiry(now + TimeDelta::seconds(60))?;
///     let _ = leases.compare_and_swap(&mine, &longer, Utc::now())?;
///     let _ = leases.release(&longer, Utc::now())?;
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct OperationLeaseFilesystemRepository {
    storage: Arc<OperationLeaseStorage>,
}

impl From<OperationLeaseStorage> for OperationLeaseFilesystemRepository {
    fn from(storage: OperationLeaseStorage) -> Self {
        Self {
            storage: Arc::new(storage),
        }
    }
}

impl OperationLeaseFilesystemRepository {
    /// Binds a repository to the storage under `storage_root`, with default settings; nothing is touched yet.
    ///
    /// For other settings, convert an [`OperationLeaseStorage`].
    pub fn new(storage_root: impl Into<PathBuf>) -> Self {
        OperationLeaseStorage::new(storage_root).into()
    }

    /// The storage, to lock it around several steps.
    pub fn storage(&self) -> &OperationLeaseStorage {
        &self.storage
    }

    /// Says whether a scope is free, held, or held by an expired lease at `observed_at`.
    ///
    /// The answer is about the scope, whichever of its operations holds it; `operation_id` serves to refuse a retired record.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::ObservedBeforeAcquisition`], [`OperationLeaseError::Retired`], and those of
    /// [`lock`](OperationLeaseStorage::lock) and [`current`](super::LockedOperationLeases::current).
    pub fn inspect(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseObservation, OperationLeaseError> {
        let observed_at = checked("observed_at", observed_at)?;
        let leases = self.storage.lock()?;
        leases.refuse_retired_operation_path(scope_ref, operation_id)?;
        Ok(observe(leases.current(scope_ref)?.as_ref(), observed_at)?)
    }

    /// Acquires an absent lease only; a live or expired one in the way stays unchanged.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::NotAcquiredAtObservation`], [`OperationLeaseError::Retired`], and those of
    /// [`lock`](OperationLeaseStorage::lock) and [`replace`](super::LockedOperationLeases::replace).
    pub fn acquire(
        &self,
        candidate: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.transition(OperationLeaseRequest::Acquire { candidate }, observed_at)
    }

    /// Renews the exact live lease, or takes over the exact expired one.
    ///
    /// # Errors
    ///
    /// The [`TransitionFault`] of a successor that breaks the law, and those of [`lock`](OperationLeaseStorage::lock) and
    /// [`replace`](super::LockedOperationLeases::replace).
    pub fn compare_and_swap(
        &self,
        predecessor: &OperationOwnerLease,
        successor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        let request = OperationLeaseRequest::CompareAndSwap {
            predecessor,
            successor,
        };
        self.transition(request, observed_at)
    }

    /// Releases the exact recorded lease. The record stays and says that the scope is free.
    ///
    /// # Errors
    ///
    /// [`TransitionFault::ObservedBeforeAcquisition`], and those of [`lock`](OperationLeaseStorage::lock) and
    /// [`replace`](super::LockedOperationLeases::replace).
    pub fn release(
        &self,
        predecessor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.transition(OperationLeaseRequest::Release { predecessor }, observed_at)
    }

    fn transition(
        &self,
        request: OperationLeaseRequest<'_>,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        let observed_at = checked("observed_at", observed_at)?;
        let scope_ref = match request {
            OperationLeaseRequest::Acquire { candidate } => candidate.scope_ref(),
            // Before any file is touched: the two scopes cannot both be the one to lock.
            OperationLeaseRequest::CompareAndSwap {
                predecessor,
                successor,
            } if predecessor.scope_ref() != successor.scope_ref() => {
                return Err(TransitionFault::ScopeChanged.into());
            }
            OperationLeaseRequest::CompareAndSwap { predecessor, .. }
            | OperationLeaseRequest::Release { predecessor } => predecessor.scope_ref(),
        };
        let leases = self.storage.lock()?;
        // As in the published package: a retired record bars a new beginning, not the end of what is running.
        if let OperationLeaseRequest::Acquire { candidate } = request {
            leases.refuse_retired_operation_path(&scope_ref, &candidate.operation_id())?;
        }
        let old = leases.load(&scope_ref)?;
        let recorded = old.as_ref().and_then(|found| found.record.lease.as_ref());
        let result = decide(request, recorded, observed_at)?;
        if let Some((operation_id, lease)) = result.to_record() {
            let record = Record {
                scope_ref,
                operation_id,
                recorded_at: observed_at,
                lease: lease.cloned(),
            };
            leases.write(&record, old.as_ref())?;
        }
        Ok(result)
    }
}

impl OperationLeaseRepository for OperationLeaseFilesystemRepository {
    fn inspect(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseObservation, OperationLeaseError> {
        self.inspect(scope_ref, operation_id, observed_at)
    }

    fn acquire(
        &self,
        candidate: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.acquire(candidate, observed_at)
    }

    fn compare_and_swap(
        &self,
        predecessor: &OperationOwnerLease,
        successor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.compare_and_swap(predecessor, successor, observed_at)
    }

    fn release(
        &self,
        predecessor: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.release(predecessor, observed_at)
    }
}

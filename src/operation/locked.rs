//! The calls that are only sound while the repository lock is held.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::error::{NotHeldReason, OperationLeaseError, TransitionFault};
use super::fault::RecordFault;
use super::file::Directory;
use super::id::{OperationConflictScopeReference, OperationId};
use super::lease::{OperationOwnerLease, checked};
use super::lock::RepositoryLock;
use super::record::Record;
use super::replace;
use super::storage::{OperationLeaseStorage, record_name};

/// The held repository lock: the calls that are only sound under it.
///
/// A journal can read the lease, prove that its writer holds it, and commit, all under one lock. Dropping this releases the lock.
#[derive(Debug)]
pub struct LockedOperationLeases<'a> {
    storage: &'a OperationLeaseStorage,
    directory: Arc<Directory>,
    lock: RepositoryLock,
    // Two threads replacing under one guard would defeat the lock between them: the guard may move, not be shared.
    one_thread_at_a_time: PhantomData<Cell<()>>,
}

impl<'a> LockedOperationLeases<'a> {
    pub(super) fn new(
        storage: &'a OperationLeaseStorage,
        directory: Arc<Directory>,
        lock: RepositoryLock,
    ) -> Self {
        Self {
            storage,
            directory,
            lock,
            one_thread_at_a_time: PhantomData,
        }
    }

    /// The lease recorded for a scope, live or expired; `None` when the scope is free.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::UnsafePath`] or [`OperationLeaseError::Record`] when what is there is not a record of this scope. It is
    /// left as it is.
    #[doc(alias = "current_unlocked")]
    pub fn current(
        &self,
        scope_ref: &OperationConflictScopeReference,
    ) -> Result<Option<OperationOwnerLease>, OperationLeaseError> {
        Ok(self.load(scope_ref)?.and_then(|found| found.record.lease))
    }

    /// Durably records a lease for a scope, or with `None` that the scope is free.
    ///
    /// This does not consult the transition law; it is the primitive under it.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::ForeignReplacement`] when the lease names another scope or operation,
    /// [`OperationLeaseError::Transition`] when it is acquired after `observed_at`, those of [`current`](Self::current),
    /// and [`OperationLeaseError::Io`] when the disk refuses. The old record stands after all of these.
    #[doc(alias = "replace_unlocked")]
    pub fn replace(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        lease: Option<&OperationOwnerLease>,
        observed_at: DateTime<Utc>,
    ) -> Result<(), OperationLeaseError> {
        let record = Record {
            scope_ref: *scope_ref,
            operation_id: *operation_id,
            recorded_at: checked("observed_at", observed_at)?,
            lease: lease.cloned(),
        };
        record.check().map_err(|fault| match fault {
            RecordFault::AcquiredAfterRecorded => TransitionFault::ObservedBeforeAcquisition.into(),
            _ => OperationLeaseError::ForeignReplacement,
        })?;
        let old = self.load(scope_ref)?;
        self.write(&record, old.as_ref())
    }

    /// Refuses a journal writer that does not hold exactly this lease, live at `observed_at`.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::NotHeld`] with the reason, and those of [`current`](Self::current).
    #[doc(alias = "require_live_exact_unlocked")]
    pub fn require_live_exact(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
        lease: &OperationOwnerLease,
        observed_at: DateTime<Utc>,
    ) -> Result<(), OperationLeaseError> {
        let observed_at = checked("observed_at", observed_at)?;
        let refused = |reason| OperationLeaseError::NotHeld {
            scope_ref: *scope_ref,
            reason,
        };
        if lease.scope_ref() != *scope_ref || lease.operation_id() != *operation_id {
            return Err(refused(NotHeldReason::ForeignLease));
        }
        let current = self.current(scope_ref)?;
        not_held(current.as_ref(), lease, observed_at).map_or(Ok(()), |reason| Err(refused(reason)))
    }

    /// Refuses when a superseded record `<operation_id>.lease.json` exists. The file is not opened.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::Retired`].
    pub fn refuse_retired_operation_path(
        &self,
        scope_ref: &OperationConflictScopeReference,
        operation_id: &OperationId,
    ) -> Result<(), OperationLeaseError> {
        let retired = format!("{operation_id}.lease.json");
        if retired != record_name(scope_ref) && self.directory.look_at(&retired)?.is_some() {
            let path = self.directory.join(retired);
            return Err(OperationLeaseError::Retired { path });
        }
        Ok(())
    }

    /// The storage whose lock this is.
    pub fn storage(&self) -> &OperationLeaseStorage {
        self.storage
    }

    pub(super) fn load(
        &self,
        scope_ref: &OperationConflictScopeReference,
    ) -> Result<Option<Loaded>, OperationLeaseError> {
        let name = record_name(scope_ref);
        let Some(bytes) = self.directory.read_record(&name)? else {
            return Ok(None);
        };
        let damaged = |reason| OperationLeaseError::Record {
            path: self.directory.join(&name),
            reason,
        };
        let record = Record::decode(&bytes).map_err(damaged)?;
        if record.scope_ref != *scope_ref {
            return Err(damaged(RecordFault::ForeignScope));
        }
        Ok(Some(Loaded { record, bytes }))
    }

    /// Replaces the record `old`, which must have been loaded under this lock.
    pub(super) fn write(
        &self,
        record: &Record,
        old: Option<&Loaded>,
    ) -> Result<(), OperationLeaseError> {
        replace::replace(
            &self.directory,
            &self.lock,
            &record_name(&record.scope_ref),
            old.map(|found| &*found.bytes),
            &record.encode(),
        )
    }
}

/// A record and the very bytes it was read from.
pub(super) struct Loaded {
    pub(super) record: Record,
    bytes: Vec<u8>,
}

/// What keeps `lease` from being the exact live one, if anything.
fn not_held(
    current: Option<&OperationOwnerLease>,
    lease: &OperationOwnerLease,
    observed_at: DateTime<Utc>,
) -> Option<NotHeldReason> {
    let Some(current) = current else {
        return Some(NotHeldReason::Absent);
    };
    if current.operation_id() != lease.operation_id() {
        Some(NotHeldReason::OtherOperation)
    } else if current != lease {
        Some(NotHeldReason::NotExact)
    } else if observed_at < current.acquired_at() {
        Some(NotHeldReason::NotYetActive)
    } else if current.expires_at() <= observed_at {
        Some(NotHeldReason::Expired)
    } else {
        None
    }
}

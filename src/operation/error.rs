//! What can go wrong, one type per question a caller may ask.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use chrono::{DateTime, Utc};

use super::fault::{InvalidInstant, PathFault, RecordFault};
use super::id::{InvalidIdentifier, OperationConflictScopeReference};

/// A refused or failed lease call.
///
/// Losing a lease to somebody is no error: that is an [`OperationLeaseResult`](super::OperationLeaseResult).
/// After any variant but [`OutcomeUnknown`](Self::OutcomeUnknown) the record is what it was before the call.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OperationLeaseError {
    /// A text is no identifier.
    #[error(transparent)]
    Identifier(#[from] InvalidIdentifier),

    /// A time that a record cannot hold.
    #[error("{field} cannot be recorded: {reason}")]
    Instant {
        /// Which of the times.
        field: &'static str,
        /// What is wrong with it.
        reason: InvalidInstant,
    },

    /// A lease must expire after its acquisition, by a microsecond or more.
    #[error(
        "a lease acquired at {acquired_at} cannot expire at {expires_at}: it must expire later"
    )]
    Window {
        /// When the lease would begin.
        acquired_at: DateTime<Utc>,
        /// When it would end.
        expires_at: DateTime<Utc>,
    },

    /// The call breaks the transition law; nothing was written.
    #[error("operation lease transition refused: {0}")]
    Transition(#[from] TransitionFault),

    /// A replacement lease names another scope or operation than the record it would be written to.
    #[error(
        "the lease to be recorded belongs to another conflict scope or operation than its record"
    )]
    ForeignReplacement,

    /// A journal writer does not hold the exact live lease.
    #[error("no exact live lease for conflict scope {scope_ref}: {reason}")]
    NotHeld {
        /// The conflict scope that was asked for.
        scope_ref: OperationConflictScopeReference,
        /// What is missing.
        reason: NotHeldReason,
    },

    /// A superseded, operation-keyed record exists. It was not opened: move it away once its operation has ended.
    #[error("retired operation-keyed lease record {}: move it away once its operation has ended", path.display())]
    Retired {
        /// The retired file.
        path: PathBuf,
    },

    /// A path is not the plain private file or directory it has to be; whatever is there was left alone.
    #[error("unsafe path {}: {reason}", path.display())]
    UnsafePath {
        /// The path refused.
        path: PathBuf,
        /// What is there instead.
        reason: PathFault,
    },

    /// A record file holds something this library would not have written; it was left alone.
    #[error("damaged lease record {}: {reason}", path.display())]
    Record {
        /// The record file.
        path: PathBuf,
        /// What is wrong with it.
        reason: RecordFault,
    },

    /// The storage lies on a file system whose locks may not exclude other machines, or not work at all.
    #[error(
        "{} is on {filesystem}, where file locks cannot be relied on: use a local disk, or accept the risk with \
         accept_network_filesystem(true)",
        path.display()
    )]
    NetworkFilesystem {
        /// The journal directory.
        path: PathBuf,
        /// The usual name of the file system.
        filesystem: &'static str,
    },

    /// Somebody else held the repository lock for the whole wait. Trying again later is sensible.
    #[error("{} was locked by others for {waited:?}", path.display())]
    LockTimeout {
        /// The lock file.
        path: PathBuf,
        /// How long this call waited.
        waited: Duration,
    },

    /// The lock file or its directory was replaced while this call relied on it; nothing was written.
    #[error("{} was replaced while it was locked: nothing may delete or move it", path.display())]
    LockLost {
        /// The lock file.
        path: PathBuf,
    },

    /// Taking a lease took longer than the lease lives; it was given up again.
    #[error("a lease of {lease:?} ran out before it was taken: the wait for the lock was longer")]
    Lapsed {
        /// How long the lease would have lived.
        lease: Duration,
    },

    /// A setting outside its accepted range.
    #[error("{setting} of {value:?} is outside {min:?} to {max:?}")]
    Setting {
        /// The setting's name.
        setting: &'static str,
        /// What was asked for.
        value: Duration,
        /// The smallest accepted value.
        min: Duration,
        /// The largest accepted value.
        max: Duration,
    },

    /// The operating system refused something; the record is unchanged.
    #[error("cannot {action} {}", path.display())]
    Io {
        /// What was being done, such as "sync the directory".
        action: &'static str,
        /// To which path.
        path: PathBuf,
        /// The operating system's answer.
        source: io::Error,
    },

    /// The new record was put in place, could not be made durable, and could not be taken back either
    /// (`rollback` says why). Inspect the scope to learn which record is there.
    #[error(
        "lease record {} may be the old or the new one: it could not be made durable, nor taken back ({rollback})",
        path.display()
    )]
    OutcomeUnknown {
        /// The record file.
        path: PathBuf,
        /// Why the new record is not durable.
        source: io::Error,
        /// Why the old record is not back.
        rollback: Box<OperationLeaseError>,
    },
}

impl OperationLeaseError {
    /// The file or directory concerned, where there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Retired { path }
            | Self::UnsafePath { path, .. }
            | Self::Record { path, .. }
            | Self::NetworkFilesystem { path, .. }
            | Self::LockTimeout { path, .. }
            | Self::LockLost { path }
            | Self::Io { path, .. }
            | Self::OutcomeUnknown { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether the same call may succeed later without anybody repairing anything.
    ///
    /// True for a lock timeout and for failures of the operating system (a full disk, for one).
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Self::LockTimeout { .. }
                | Self::LockLost { .. }
                | Self::Lapsed { .. }
                | Self::Io { .. }
                | Self::OutcomeUnknown { .. }
        )
    }
}

/// Which part of the transition law a call breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransitionFault {
    /// The observation lies before the acquisition of a lease that it would have to prove something about.
    #[error("the time of observation precedes the acquisition of the lease")]
    ObservedBeforeAcquisition,
    /// A new lease must begin exactly when it is observed.
    #[error("a new lease must be acquired exactly at the time of observation")]
    NotAcquiredAtObservation,
    /// A compare-and-swap stays within one conflict scope.
    #[error("compare-and-swap cannot change the conflict scope")]
    ScopeChanged,
    /// A renewal keeps the operation.
    #[error("a renewal must keep the operation")]
    RenewalChangesOperation,
    /// A renewal keeps the owner.
    #[error("a renewal must keep the owner")]
    RenewalChangesOwner,
    /// A renewal keeps the token.
    #[error("a renewal must keep the token")]
    RenewalChangesToken,
    /// A renewal keeps the time of acquisition.
    #[error("a renewal must keep the time of acquisition")]
    RenewalChangesAcquisition,
    /// A renewal moves the expiry later.
    #[error("a renewal must expire later than its predecessor")]
    RenewalDoesNotExtend,
    /// A takeover is by another owner.
    #[error("a takeover needs a new owner")]
    TakeoverKeepsOwner,
    /// A takeover brings its own token.
    #[error("a takeover needs a new token")]
    TakeoverKeepsToken,
}

/// Why [`require_live_exact`](super::LockedOperationLeases::require_live_exact) refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotHeldReason {
    /// The lease shown belongs to another scope or operation than the writer names.
    #[error("the lease shown is for another conflict scope or operation")]
    ForeignLease,
    /// Nobody holds the scope.
    #[error("there is no current lease")]
    Absent,
    /// The scope is held for another operation.
    #[error("the scope is held for another operation")]
    OtherOperation,
    /// The scope is held for this operation, by another lease: renewed since, or another owner's.
    #[error("the lease shown is not the current one")]
    NotExact,
    /// The lease begins after the time given.
    #[error("the lease is not yet active at the time given")]
    NotYetActive,
    /// The lease has run out at the time given.
    #[error("the lease is expired at the time given")]
    Expired,
}

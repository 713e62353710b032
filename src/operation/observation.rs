//! What calls answer: enums whose variants carry exactly what the outcome proves.

use super::id::OperationId;
use super::lease::OperationOwnerLease;

/// The state of a conflict scope at one instant.
///
/// Only [`observe`](super::observe) makes one, so the lease in it always bears the variant out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum OperationLeaseObservation {
    /// Nobody holds the scope.
    Absent,
    /// The scope is held by a live lease.
    #[non_exhaustive]
    Active {
        /// The live lease.
        current: OperationOwnerLease,
    },
    /// The scope was held by a lease that has run out and may be taken over.
    #[non_exhaustive]
    Expired {
        /// The expired lease.
        current: OperationOwnerLease,
    },
}

impl OperationLeaseObservation {
    /// The recorded lease, live or expired.
    pub fn current(&self) -> Option<&OperationOwnerLease> {
        match self {
            Self::Absent => None,
            Self::Active { current } | Self::Expired { current } => Some(current),
        }
    }
}

/// The outcome of a transition: done, or refused because of what is there.
///
/// Only [`decide`](super::decide) makes one, so its witnesses always bear the variant out.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum OperationLeaseResult {
    /// The absent lease was acquired.
    #[non_exhaustive]
    Acquired {
        /// The lease now recorded.
        current: OperationOwnerLease,
    },
    /// The live lease was renewed by its owner.
    #[non_exhaustive]
    Renewed {
        /// The lease before.
        predecessor: OperationOwnerLease,
        /// The lease now recorded: the same but for a later expiry.
        current: OperationOwnerLease,
    },
    /// The lease was given up; the scope is free.
    #[non_exhaustive]
    Released {
        /// The lease given up.
        predecessor: OperationOwnerLease,
    },
    /// Not acquired: the scope is held by a lease that has not run out. Nothing was written.
    #[non_exhaustive]
    Conflict {
        /// The lease in the way.
        current: OperationOwnerLease,
    },
    /// Not acquired: an expired lease is in the way, and must be taken over by exact comparison. Nothing was written.
    #[non_exhaustive]
    Expired {
        /// The expired lease: the predecessor for a takeover.
        predecessor: OperationOwnerLease,
    },
    /// The expired lease was taken over by a new owner.
    #[non_exhaustive]
    TakenOver {
        /// The expired lease.
        predecessor: OperationOwnerLease,
        /// The lease now recorded.
        current: OperationOwnerLease,
    },
    /// The caller's lease is not the recorded one (any more). Nothing was written.
    #[non_exhaustive]
    OwnerLost {
        /// The lease the caller believed in.
        predecessor: OperationOwnerLease,
        /// What is recorded instead.
        current: Option<OperationOwnerLease>,
    },
}

impl OperationLeaseResult {
    /// The lease that is recorded after the call, as far as the outcome shows one.
    pub fn current(&self) -> Option<&OperationOwnerLease> {
        match self {
            Self::Acquired { current }
            | Self::Renewed { current, .. }
            | Self::Conflict { current }
            | Self::TakenOver { current, .. } => Some(current),
            Self::OwnerLost { current, .. } => current.as_ref(),
            Self::Released { .. } | Self::Expired { .. } => None,
        }
    }

    /// The lease that the call was about or found in its way, as far as the outcome shows one.
    pub fn predecessor(&self) -> Option<&OperationOwnerLease> {
        match self {
            Self::Renewed { predecessor, .. }
            | Self::Released { predecessor }
            | Self::Expired { predecessor }
            | Self::TakenOver { predecessor, .. }
            | Self::OwnerLost { predecessor, .. } => Some(predecessor),
            Self::Acquired { .. } | Self::Conflict { .. } => None,
        }
    }

    /// What a repository has to record for this outcome to become true: `None` for nothing, else the operation and
    /// its lease, where `None` means that the scope is free from now on.
    pub fn to_record(&self) -> Option<(OperationId, Option<&OperationOwnerLease>)> {
        match self {
            Self::Acquired { current }
            | Self::Renewed { current, .. }
            | Self::TakenOver { current, .. } => Some((current.operation_id(), Some(current))),
            Self::Released { predecessor } => Some((predecessor.operation_id(), None)),
            Self::Conflict { .. } | Self::Expired { .. } | Self::OwnerLost { .. } => None,
        }
    }
}

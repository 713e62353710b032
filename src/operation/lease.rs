//! One owner's claim on an operation, for a window of time.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::error::OperationLeaseError;
use super::id::{OperationConflictScopeReference, OperationId, OperationLeaseToken, OwnerId};
use super::instant;

/// Immutable proof that one owner holds an operation from `acquired_at` until just before `expires_at`.
///
/// Times are kept in whole microseconds, cut towards the past, because that is what a record holds: a lease read
/// back equals the lease that was written. Years 1 to 9999 are accepted.
///
/// As JSON it is the object found inside a record, with the same field names and time format.
///
/// ```
/// use chrono::{TimeDelta, Utc};
/// use leasehold::operation::{OperationId, OperationLeaseToken, OperationOwnerLease, OwnerId};
///
/// let now = Utc::now();
/// let lease = OperationOwnerLease::new(
///     OperationId::random(),
///     [7; 32].into(),
///     OwnerId::random(),
///     OperationLeaseToken::random(),
///     now,
///     now + TimeDelta::seconds(30),
/// )?;
/// assert!(lease.is_live_at(now));
/// # Ok::<(), leasehold::operation::OperationLeaseError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OperationOwnerLease {
    operation_id: OperationId,
    scope_ref: OperationConflictScopeReference,
    owner_id: OwnerId,
    token: OperationLeaseToken,
    acquired_at: DateTime<Utc>,
    expires_at: DateTime<Utc>,
}

impl OperationOwnerLease {
    /// Makes a lease for the window from `acquired_at` to `expires_at`.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::Instant`] for a time no record can hold, and [`OperationLeaseError::Window`] unless the lease
    /// expires at least a microsecond after its acquisition.
    pub fn new(
        operation_id: OperationId,
        scope_ref: OperationConflictScopeReference,
        owner_id: OwnerId,
        token: OperationLeaseToken,
        acquired_at: DateTime<Utc>,
        expires_at: DateTime<Utc>,
    ) -> Result<Self, OperationLeaseError> {
        let acquired_at = checked("acquired_at", acquired_at)?;
        let expires_at = checked("expires_at", expires_at)?;
        if expires_at <= acquired_at {
            return Err(OperationLeaseError::Window {
                acquired_at,
                expires_at,
            });
        }
        Ok(Self {
            operation_id,
            scope_ref,
            owner_id,
            token,
            acquired_at,
            expires_at,
        })
    }

    /// This lease with another expiry: the successor for a renewal.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new). That the expiry is later than before is for the renewal itself to judge.
    pub fn with_expiry(&self, expires_at: DateTime<Utc>) -> Result<Self, OperationLeaseError> {
        Self::new(
            self.operation_id,
            self.scope_ref,
            self.owner_id,
            self.token,
            self.acquired_at,
            expires_at,
        )
    }

    /// The operation that is held.
    pub fn operation_id(&self) -> OperationId {
        self.operation_id
    }

    /// The scope in which operations exclude each other.
    pub fn scope_ref(&self) -> OperationConflictScopeReference {
        self.scope_ref
    }

    /// Who holds it.
    pub fn owner_id(&self) -> OwnerId {
        self.owner_id
    }

    /// The capability to renew and release.
    pub fn token(&self) -> OperationLeaseToken {
        self.token
    }

    /// When this tenure began; renewals keep it.
    pub fn acquired_at(&self) -> DateTime<Utc> {
        self.acquired_at
    }

    /// The first instant at which the lease is no longer live.
    pub fn expires_at(&self) -> DateTime<Utc> {
        self.expires_at
    }

    /// Whether `instant` lies in the window, its begin included and its end excluded.
    pub fn is_live_at(&self, instant: DateTime<Utc>) -> bool {
        self.acquired_at <= instant && instant < self.expires_at
    }
}

/// A [normalized](instant::normalize) time, or an error that names the field.
pub(super) fn checked(
    field: &'static str,
    instant: DateTime<Utc>,
) -> Result<DateTime<Utc>, OperationLeaseError> {
    instant::normalize(instant).map_err(|reason| OperationLeaseError::Instant { field, reason })
}

// The order of the fields is the order in the file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire {
    operation_id: OperationId,
    scope_ref: OperationConflictScopeReference,
    owner_id: OwnerId,
    token: OperationLeaseToken,
    acquired_at: String,
    expires_at: String,
}

impl Serialize for OperationOwnerLease {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Wire {
            operation_id: self.operation_id,
            scope_ref: self.scope_ref,
            owner_id: self.owner_id,
            token: self.token,
            acquired_at: instant::format(self.acquired_at),
            expires_at: instant::format(self.expires_at),
        }
        .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for OperationOwnerLease {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let wire = Wire::deserialize(deserializer)?;
        let acquired_at = instant::parse(&wire.acquired_at).map_err(de::Error::custom)?;
        let expires_at = instant::parse(&wire.expires_at).map_err(de::Error::custom)?;
        Self::new(
            wire.operation_id,
            wire.scope_ref,
            wire.owner_id,
            wire.token,
            acquired_at,
            expires_at,
        )
        .map_err(de::Error::custom)
    }
}

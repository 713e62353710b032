//! The record of one conflict scope: its bytes, and a strict reading of them.

use chrono::{DateTime, Utc};
use serde::Serialize;

use super::error::OperationLeaseError;
use super::fault::RecordFault;
use super::id::{OperationConflictScopeReference, OperationId};
use super::instant;
use super::json::{Fields, Node};
use super::lease::OperationOwnerLease;

/// The one layout of a record that is read and written.
const SCHEMA_VERSION: u64 = 2;

/// No record that follows the schema comes near this size; nothing larger is read into memory.
pub(super) const MAX_RECORD_BYTES: u64 = 64 * 1024;

/// The durable state of one conflict scope. Without a lease, the scope is free.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) scope_ref: OperationConflictScopeReference,
    pub(super) operation_id: OperationId,
    pub(super) recorded_at: DateTime<Utc>,
    pub(super) lease: Option<OperationOwnerLease>,
}

impl Record {
    /// The file's bytes: the same for the same record, always.
    pub(super) fn encode(&self) -> Vec<u8> {
        // The order of the fields is the order in the file.
        #[derive(Serialize)]
        struct Wire<'a> {
            schema_version: u64,
            scope_ref: OperationConflictScopeReference,
            operation_id: OperationId,
            recorded_at: String,
            lease: Option<&'a OperationOwnerLease>,
        }
        let wire = Wire {
            schema_version: SCHEMA_VERSION,
            scope_ref: self.scope_ref,
            operation_id: self.operation_id,
            recorded_at: instant::format(self.recorded_at),
            lease: self.lease.as_ref(),
        };
        let mut bytes =
            serde_json::to_vec_pretty(&wire).expect("strings and integers always serialize");
        bytes.push(b'\n');
        bytes
    }

    /// Reads a record, and refuses whatever [`encode`](Self::encode) could not have meant.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, RecordFault> {
        let mut fields = Node::read(bytes)?.into_fields("record")?;
        // The version first: of another version, the other fields prove nothing.
        let version = fields
            .take("schema_version")?
            .into_integer("schema_version")?;
        if version != SCHEMA_VERSION.to_string() {
            return Err(RecordFault::UnknownVersion { found: version });
        }
        let scope_ref = fields.identifier("scope_ref")?;
        let operation_id = fields.identifier("operation_id")?;
        let recorded_at = fields.instant("recorded_at")?;
        let lease = match fields.take("lease")? {
            Node::Null => None,
            object => Some(decode_lease(object.into_fields("lease")?)?),
        };
        fields.finish()?;
        let record = Self {
            scope_ref,
            operation_id,
            recorded_at,
            lease,
        };
        record.check()?;
        Ok(record)
    }

    /// Whether the parts agree with each other.
    pub(super) fn check(&self) -> Result<(), RecordFault> {
        let Some(lease) = &self.lease else {
            return Ok(());
        };
        if lease.operation_id() != self.operation_id {
            return Err(RecordFault::LeaseOperationMismatch);
        }
        if lease.scope_ref() != self.scope_ref {
            return Err(RecordFault::LeaseScopeMismatch);
        }
        if lease.acquired_at() > self.recorded_at {
            return Err(RecordFault::AcquiredAfterRecorded);
        }
        Ok(())
    }
}

fn decode_lease(mut fields: Fields<'_>) -> Result<OperationOwnerLease, RecordFault> {
    let lease = OperationOwnerLease::new(
        fields.identifier("operation_id")?,
        fields.identifier("scope_ref")?,
        fields.identifier("owner_id")?,
        fields.identifier("token")?,
        fields.instant("acquired_at")?,
        fields.instant("expires_at")?,
    );
    fields.finish()?;
    lease.map_err(|error| match error {
        OperationLeaseError::Instant { field, reason } => {
            RecordFault::InvalidInstant { field, reason }
        }
        _ => RecordFault::LeaseWindow,
    })
}

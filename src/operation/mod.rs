//! stub
mod error;
mod file;
mod filesystem;
mod id;
mod instant;
mod json;
mod law;
mod lease;
mod lock;
mod observation;
mod record;
mod replace;
mod repository;
mod storage;

pub use error::{
    FileKind, InvalidInstant, NotHeldReason, OperationLeaseError, PathFault, RecordFault, TransitionFault,
};
pub use id::{InvalidIdentifier, OperationConflictScopeReference, OperationId, OperationLeaseToken, OwnerId};
pub use law::{OperationLeaseRequest, decide, observe};
pub use lease::OperationOwnerLease;
pub use observation::{OperationLeaseObservation, OperationLeaseResult};
pub use repository::{OperationLeaseFilesystemRepository, OperationLeaseRepository};
pub use storage::{LockedOperationLeases, OperationLeaseStorage};

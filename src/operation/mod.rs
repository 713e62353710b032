//! stub
mod error;
mod file;
mod filesystem;
mod hold;
mod id;
mod instant;
mod json;
mod law;
mod lease;
mod lock;
mod observation;
mod record;
mod renewer;
mod replace;
mod repository;
mod storage;
mod supervisor;
mod trust;

pub use error::{
    FileKind, InvalidInstant, NotHeldReason, OperationLeaseError, PathFault, RecordFault,
    TransitionFault,
};
pub use hold::{HeldOperation, OperationLoss};
pub use id::{
    InvalidIdentifier, OperationConflictScopeReference, OperationId, OperationLeaseToken, OwnerId,
};
pub use law::{OperationLeaseRequest, decide, observe};
pub use lease::OperationOwnerLease;
pub use observation::{OperationLeaseObservation, OperationLeaseResult};
pub use repository::{OperationLeaseFilesystemRepository, OperationLeaseRepository};
pub use storage::{LockedOperationLeases, OperationLeaseStorage};
pub use supervisor::{OperationRun, OperationSupervisor};

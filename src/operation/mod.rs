//! Durable owner leases for supervised operations, on the file system of one machine.
//!
//! An operation that must not run twice at once takes the lease of its conflict scope before it starts, renews it while it runs,
//! and releases it at the end. If its process dies, the lease expires, and whoever shows that exact expired lease takes it over.
//! Everything is in a directory: there is no server, and a crash at any point leaves the old record or the new one, whole.
//!
//! ```
//! use std::time::Duration;
//!
//! use leasehold::operation::{OperationId, OperationLeaseFilesystemRepository, OperationRun, OperationSupervisor};
//!
//! # let directory = tempfile::tempdir()?;
//! # let storage_root = directory.path();
//! let leases = OperationLeaseFilesystemRepository::new(storage_root);
//! let supervisor = OperationSupervisor::new(leases).lease(Duration::from_secs(10))?;
//!
//! // Whatever must not run twice at once shares a scope; a digest of "nightly export of account 7" makes a good one.
//! let scope_ref = "5c".repeat(32).parse()?;
//! let run = supervisor.run(&scope_ref, &OperationId::random(), |held| {
//!     let mut exported = 0;
//!     while exported < 1000 && held.is_held() {
//!         exported += 1;
//!     }
//!     exported
//! })?;
//! match run {
//!     OperationRun::Completed { value } => assert_eq!(value, 1000),
//!     OperationRun::Busy { current } => println!("held by {} until {}", current.owner_id(), current.expires_at()),
//!     OperationRun::Lost { cause, .. } => println!("stopped: {cause}"),
//!     OperationRun::Unreleased { error, .. } => println!("done, but the lease stays until it expires: {error}"),
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The parts
//!
//! - [`OperationSupervisor`] does all of it: it acquires or takes over, renews from a background thread, tells the work when the lease is lost,
//!   and releases.
//! - [`OperationLeaseFilesystemRepository`] makes single transitions, by a clock that the caller gives. [`OperationLeaseRepository`] is the port
//!   that it fills.
//! - [`OperationLeaseStorage`] is the directory and its lock, for a journal that commits under the same lock as the leases.
//! - [`decide`] is the transition law alone, for adapters and for tests.
//!
//! # The law
//!
//! ```text
//!             acquire                         compare_and_swap: renew
//!   absent ────────────▶ live ◀──────────────────────────────────────┐
//!      ▲                  │ └────────────────────────────────────────┘
//!      │                  │ time
//!      │ release          ▼        compare_and_swap: take over
//!      └─────────────── expired ─────────────────────────────▶ live, of another owner
//! ```
//!
//! - Only an absent lease can be acquired, and it begins when it is observed.
//! - Only the exact recorded lease can be renewed, taken over or released: all six fields, to the microsecond.
//! - A renewal, of a live lease, keeps everything but the expiry, which moves later.
//! - A takeover, of an expired lease, is by a new owner with a new token, and begins when it is observed.
//! - A call that loses gets what is recorded instead, and writes nothing. A call that breaks the law is an error, and writes nothing.
//!
//! # What is on disk
//!
//! `<storage_root>/operation-journals/` (mode 0700) holds `<scope_ref>.lease.json` (mode 0600) per scope, and the lock file
//! `.repository.lock`. Layout, bytes and lock are those of the published Python package `cadrumo` 0.5, so that both can share a directory.
//! One difference in conduct: a call that loses gets its result even if its clock was read before the winner's lease began, as
//! happens to whoever waits for the lock; the package raises an error.
//!
//! A record is replaced by way of a temporary file in the same directory: write, sync, rename, sync of the directory. If the last step
//! fails, the old bytes are put back, so that an error means that nothing changed. Files that are not plain, private and ours, and
//! records that are not exactly such, are refused and left alone.
//!
//! # What is not promised
//!
//! - Leases do not span machines. Network file systems are refused; see
//!   [`accept_network_filesystem`](OperationLeaseStorage::accept_network_filesystem).
//! - A lease tells its owner when to stop; it cannot stop it. Work that goes on after [`HeldOperation::is_held`] turned false overlaps with the next
//!   owner's, unless every effect is committed through a journal that calls
//!   [`require_live_exact`](LockedOperationLeases::require_live_exact).
//! - The caller's wall clock decides what is expired, so owners on one machine are expected to use its clock.
//! - Another process of the same user can delete or change anything here. The lock file must never be deleted; when it is, a holder
//!   notices before it writes.
//!
//! This module needs a Unix system, for `flock` and files opened relative to a directory; Linux is tested.

mod error;
mod fault;
mod file;
mod filesystem;
mod hold;
mod id;
mod instant;
mod json;
mod law;
mod lease;
mod lock;
mod locked;
mod observation;
mod record;
mod renewer;
mod replace;
mod repository;
mod storage;
mod supervisor;
mod trust;

pub use error::{NotHeldReason, OperationLeaseError, TransitionFault};
pub use fault::{FileKind, InvalidInstant, PathFault, RecordFault};
pub use hold::{HeldOperation, OperationLoss};
pub use id::{
    InvalidIdentifier, OperationConflictScopeReference, OperationId, OperationLeaseToken, OwnerId,
};
pub use law::{OperationLeaseRequest, decide, observe};
pub use lease::OperationOwnerLease;
pub use locked::LockedOperationLeases;
pub use observation::{OperationLeaseObservation, OperationLeaseResult};
pub use repository::{OperationLeaseFilesystemRepository, OperationLeaseRepository};
pub use storage::OperationLeaseStorage;
pub use supervisor::{OperationRun, OperationSupervisor};

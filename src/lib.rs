//! Exactly one holder at a time, for threaded programs without an async runtime.
//!
//! Two doors:
//!
//! - [`election`]: leader election with leases, namespaces and fencing tokens on the SQL database
//!   an application already has: PostgreSQL, MySQL or MariaDB, SQLite.
//! - [`operation`]: durable owner leases on the filesystem, for supervised operations on one machine.
//!
//! ```
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let dir = tempfile::tempdir()?;
//! # let url = format!("sqlite:{}", dir.path().join("app.db").display());
//! use std::time::Duration;
//!
//! use leasehold::election::{Election, LeaderGuard};
//! use uuid::Uuid;
//!
//! // postgres://…, mysql://… or sqlite:PATH
//! let election = Election::connect(&url)?;
//! let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "nightly")?;
//!
//! if let Some(tenure) = guard.wait_until_leader(Duration::from_secs(5)) {
//!     println!("leading under term {}", tenure.term());
//!     while tenure.is_current() {
//!         // One piece of the nightly work, short against the lease.
//!         # break;
//!     }
//! }
//! guard.resign()?;
//! # Ok(())
//! # }
//! ```
//!
//! # Feature flags
//!
//! | feature | default | what it brings |
//! |---|---|---|
//! | `sqlite` | yes | elections on SQLite |
//! | `bundled-sqlite` | yes | SQLite compiled in, so that only a C compiler is needed |
//! | `postgres` | | elections on PostgreSQL; needs libpq |
//! | `mysql` | | elections on MySQL and MariaDB; needs their client library |
//!
//! With none of the three databases there is no [`election`]. What is not promised is said there
//! first thing.

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite", unix))]
mod clock;
#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
mod fork;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
pub mod election;
#[cfg(unix)]
pub mod operation;

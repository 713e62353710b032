//! Leader election with leases and namespaces, on the SQL database an application already has.
//!
//! # What it does
//!
//! In each *namespace* at most one *candidate* at a time holds a *lease*: a row with an expiry. The
//! holder is the *leader*. Whoever finds the lease vacant or expired may take it; nobody takes one
//! that has not run out. Every acquisition has a *term*, an integer that only grows: the fencing
//! token of what the leader does.
//!
//! There are two ways in. The functions of this module, and the same as methods of [`Election`], each
//! do one thing once. A [`LeaderGuard`] campaigns, beats and watches in the background, for as long
//! as it lives.
//!
//! Where a namespace is an `Option`, `None` is the namespace `"default"`. The functions give leases
//! and registrations the duration of the process, 60 s unless [`set_expire`] changes it; an
//! [`Election`] has its own, which its builder sets. The tables must be there: [`Election::connect`]
//! makes them, and so does [`migrate`].
//!
//! # What it does not promise
//!
//! - A leader learns of its loss by time, not by message. Between the last look at
//!   [`is_leader`](LeaderGuard::is_leader) and the work that follows, time passes. What must not
//!   happen twice belongs into a fenced [`transaction`](LeaderGuard::transaction), or carries the
//!   term to a store that refuses lower ones.
//! - The election is as durable and as single as its database. A fail-over that loses commits loses
//!   leases and terms with them.
//! - It is no queue and no quorum: who is next is nobody's right, and a majority is not asked.
//!
//! # Safety
//!
//! These hold under every fault, and each has tests that fail without it:
//!
//! - **S1** At most one candidate holds an unexpired lease in a namespace, by the database's clock.
//! - **S2** Every instant written or compared in SQL is the database's own clock, read after the row
//!   lock is held, in UTC. Clients send durations, never instants. Nobody judges another's lease by
//!   their own expire setting.
//! - **S3** A live lease of another candidate is never taken, shortened or touched. A renewal and a
//!   release match namespace, candidate, term and an unexpired lease; no match means lost, and
//!   nothing is written.
//! - **S4** The term grows with every acquisition, also by the same candidate after a lapse or a
//!   resignation; never with a renewal; and is not reset while the database lives.
//! - **S5** A guard says that it leads only before **start of the last successful beat + expire -
//!   margin**, by a clock that counts the time the machine sleeps (`CLOCK_BOOTTIME` on Linux). It
//!   needs no query and no lock for that, and fails closed: with a query that hangs, a thread that
//!   died, a process that was stopped, in a forked child.
//! - **S6** What an interrupted commit did is unknown, and counts as not renewed.
//! - **S7** Two guards with one candidate id, in one process or two, never lead together.
//! - **S8** To resign is to stop beating, to wait until the guarded work has ended, to release, to
//!   notify. No beat in flight revives a lease that was released.
//! - **S9** Errors that may pass are retried inside a time budget; they are never reported as lost,
//!   nor as leader.
//! - **S10** Text is exact: names that differ in any byte are different namespaces on every database.
//!
//! Why one leader: the row of a namespace is locked before it is judged, by the clock of the one
//! database all ask, and changed before the lock is given up; so of two that want it the second
//! sees what the first wrote. Why the guard agrees with the row: it counts the lease from before its
//! question was sent, and the database from after it had arrived, so the guard's lease ends first.
//!
//! # The life of a guard
//!
//! ```text
//!            lease is vacant or over: take it, term + 1
//!   +-----------+ ----------------------------------------> +---------+
//!   | following |                                           | leading | <--+
//!   +-----------+ <---------------------------------------- +---------+    | beat: renew
//!     |   ^    trusted time is over, or the row says         |     |  |    | lease and
//!     |   |    another term, or is gone: Lost                |     |  +----+ registration
//!     |   +-- looks each beat, and when the                  |     |
//!     |       followed lease ends or is released             |     | resign, drop
//!     | resign, drop                                         |     v
//!     |                                          work ends   |  +---------+
//!     +----------------------------------------------------> |  | leaving | -> released
//!                                                            +> +---------+
//! ```
//!
//! | What happens | What the guard does |
//! |---|---|
//! | one beat fails | nothing is lost; the next try follows soon, on a fresh connection |
//! | the database does not answer | [`Event::Unreachable`]; false at the deadline; [`Lost::Unreachable`] |
//! | a beat hangs | after the attempt timeout it is abandoned with its thread and connection; a late answer counts for nothing |
//! | the row is locked by a session that forgot it | no other namespace notices; false at the deadline; [`Lost::Expired`] |
//! | another candidate has taken the lease | [`Lost::Superseded`] at the next beat; its row is not touched |
//! | the row or the table is gone | [`Lost::RowGone`] at the next beat; the next term is higher where the history knows one |
//! | the process is stopped, the machine sleeps | false at the first question after; [`Lost::Suspended`] |
//! | the process forks | false in the child |
//! | the heartbeat thread panics | a failed beat like any other |
//! | the thread cannot be started | [`LeaderGuard::spawn`] fails; no lease was taken |
//! | the network is dark while a guard is dropped | `drop` returns within 2 seconds; the lease runs out by itself |
//! | the outcome of an acquisition is unknown | it counts as not acquired: the guard waits until that lease is over |
//!
//! After every loss a guard stands again, unless it was built with
//! [`once`](LeaderGuardBuilder::once).
//!
//! # Clocks
//!
//! PostgreSQL and MySQL have one clock for all who ask them. SQLite's is the clock of the machine,
//! which all processes that share a file have in common. A step of the database's clock moves the
//! end of every lease by as much; keep it slewed, as time daemons do.

mod builder;
mod calls;
mod campaign;
mod classify;
mod connection;
mod error;
mod event;
mod expected;
mod expire;
mod fence;
mod guard;
#[cfg(test)]
mod guard_tests;
mod handle;
mod heartbeat;
mod migrate;
mod model;
mod namespace;
mod pool;
mod retry;
mod rule;
mod seat;
mod settings;
mod store;
mod sweep;
mod term;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod test_support;
mod timekeeper;
mod url;

use uuid::Uuid;

use calls::Call;
use connection::sealed::Migratable;
use expected::Expected;
use expire::Expire;
use namespace::Namespace;

pub use builder::ElectionBuilder;
pub use connection::ElectionConnection;
pub use error::ElectionError;
pub use event::{Event, Lost};
pub use guard::{LeaderGuard, LeaderGuardBuilder};
pub use handle::Election;
#[cfg(feature = "mysql")]
pub use migrate::MYSQL_MIGRATIONS;
#[cfg(feature = "postgres")]
pub use migrate::POSTGRES_MIGRATIONS;
#[cfg(feature = "sqlite")]
pub use migrate::SQLITE_MIGRATIONS;
pub use model::{ElectionCandidate, ElectionLeader, Ending, Leader, TenureRecord};
pub use seat::Tenure;
pub use term::Term;

/// Acquires or renews leadership, and says who leads after this call.
///
/// Leadership is taken when it is vacant, when its lease has expired, or when the caller holds it
/// already; another candidate's unexpired lease is never preempted. The caller is registered as a
/// candidate, or its registration refreshed; a follower that calls often writes that at most once
/// in a third of the lease duration, and otherwise nothing.
///
/// Inside a transaction that the caller has open the call joins it as a savepoint: what it did
/// becomes visible with the caller's commit, and the leader row stays locked until then.
///
/// # Errors
///
/// [`InvalidNamespace`](ElectionError::InvalidNamespace) before anything is written;
/// [`LockTimeout`](ElectionError::LockTimeout) when the row stayed locked;
/// [`Corrupt`](ElectionError::Corrupt), [`Schema`](ElectionError::Schema) and
/// [`Database`](ElectionError::Database). An error says nothing about who leads.
pub fn elect<C: ElectionConnection>(
    conn: &mut C,
    candidate_id: Uuid,
    ns: Option<&str>,
) -> Result<Uuid, ElectionError> {
    let call = Call::by("elect", candidate_id, ns, Expire::process_default())?;
    calls::elect(conn.raw(), &call, Expected::Nothing).map(|elected| elected.leader)
}

/// Refreshes the registration of a candidate and extends its expiry.
///
/// The same as [`register_candidate`]: a candidate that is not registered becomes so. It does not
/// renew a leader's lease; [`elect`] does both.
///
/// # Errors
///
/// As [`elect`].
pub fn heartbeat<C: ElectionConnection>(
    conn: &mut C,
    candidate_id: Uuid,
    ns: Option<&str>,
) -> Result<(), ElectionError> {
    let call = Call::by("heartbeat", candidate_id, ns, Expire::process_default())?;
    calls::register(conn.raw(), &call)
}

/// Registers a candidate in a namespace, or refreshes its registration.
///
/// The registration ends after the lease duration unless another heartbeat comes. It is kept for a
/// day after that, for [`candidates`](Election::candidates) to show. Then it is removed by one of
/// those who register anew, here or by [`elect`]: each looks at a few rows, unless the caller has a
/// transaction open.
///
/// # Errors
///
/// As [`elect`].
pub fn register_candidate<C: ElectionConnection>(
    conn: &mut C,
    candidate_id: Uuid,
    ns: Option<&str>,
) -> Result<(), ElectionError> {
    let call = Call::by(
        "register_candidate",
        candidate_id,
        ns,
        Expire::process_default(),
    )?;
    calls::register(conn.raw(), &call)
}

/// Removes a candidate, and clears leadership if that candidate holds it.
///
/// A lease that another candidate holds is not touched, whatever was true when the call began. A
/// candidate that is not registered is removed already: no error.
///
/// # Errors
///
/// As [`elect`].
pub fn unregister_candidate<C: ElectionConnection>(
    conn: &mut C,
    candidate_id: Uuid,
    ns: Option<&str>,
) -> Result<(), ElectionError> {
    let call = Call::by(
        "unregister_candidate",
        candidate_id,
        ns,
        Expire::process_default(),
    )?;
    calls::unregister(conn.raw(), &call)
}

/// Whether a candidate holds an unexpired lease, by the database's clock at the moment of reading.
///
/// The answer is about the past as soon as it is given. To write only while leader, fence the
/// write, see [`LeaderGuard::transaction`]. Inside a transaction above read committed (the default
/// of MySQL, and of SQLite once it has read) the row is that of the transaction's snapshot, judged
/// by the clock of now: ask outside.
///
/// # Errors
///
/// As [`elect`]; a read takes no lock.
pub fn is_leader<C: ElectionConnection>(
    conn: &mut C,
    candidate_id: Uuid,
    ns: Option<&str>,
) -> Result<bool, ElectionError> {
    let call = Call::by("is_leader", candidate_id, ns, Expire::process_default())?;
    calls::is_leader(conn.raw(), &call)
}

/// The candidates whose registration has not expired, sorted.
///
/// # Errors
///
/// As [`elect`]; a read takes no lock.
pub fn list_candidates<C: ElectionConnection>(
    conn: &mut C,
    ns: Option<&str>,
) -> Result<Vec<Uuid>, ElectionError> {
    let call = Call::new("list_candidates", ns, Expire::process_default())?;
    calls::list_candidates(conn.raw(), &call)
}

/// Who holds an unexpired lease, under which term and for how long; `None` if nobody does.
///
/// # Errors
///
/// As [`elect`]; a read takes no lock.
pub fn leader<C: ElectionConnection>(
    conn: &mut C,
    ns: Option<&str>,
) -> Result<Option<Leader>, ElectionError> {
    let call = Call::new("leader", ns, Expire::process_default())?;
    calls::leader(conn.raw(), &call)
}

/// Whether `ns` can name a namespace: 1 to 255 characters, none of them a control character, and no
/// whitespace at either end.
///
/// Every call judges that itself; this is for names that are configured long before one.
///
/// # Errors
///
/// [`InvalidNamespace`](ElectionError::InvalidNamespace), with the reason.
pub fn validate_namespace(ns: &str) -> Result<(), ElectionError> {
    Namespace::new(Some(ns)).map(drop)
}

/// Sets how long a lease and a registration last, in seconds, for the whole process: 1 s to 365
/// days. Call it once at startup.
///
/// It holds for the calls that follow, except on an [`Election`] that has an expire of its own.
/// Defaults to 60.
///
/// # Errors
///
/// [`InvalidSetting`](ElectionError::InvalidSetting) outside the range; nothing is changed.
pub fn set_expire(sec: u32) -> Result<(), ElectionError> {
    Expire::set_process_default(Expire::from_secs(sec)?);
    Ok(())
}

/// Creates the election tables, or brings them up to date.
///
/// Any number of processes may do so at once, beside the application's own migrations and beside
/// tables that the Python package has created. When nothing is pending, nothing is written and no
/// privilege is needed.
///
/// # Errors
///
/// [`Migration`](ElectionError::Migration) and [`Database`](ElectionError::Database).
pub fn migrate<C: ElectionConnection>(conn: &mut C) -> Result<(), ElectionError> {
    conn.raw().migrate()
}

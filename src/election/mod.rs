//! Leader election with leases and namespaces, on the SQL database an application already has.

mod calls;
mod campaign;
mod classify;
mod connection;
mod error;
mod event;
mod expire;
mod fence;
mod guard;
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
mod term;
mod url;

use uuid::Uuid;

use calls::Call;
use connection::sealed::Migratable;
use expire::Expire;

pub use connection::ElectionConnection;
pub use error::ElectionError;
pub use event::{Event, Lost};
pub use guard::{LeaderGuard, LeaderGuardBuilder};
pub use handle::{Election, ElectionBuilder};
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
    calls::elect(conn.raw(), &call)
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
/// The registration ends after the lease duration unless another heartbeat comes.
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
/// write.
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

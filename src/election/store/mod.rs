//! Rows in and out. All SQL and all that differs between databases lives here, one file for each.
//!
//! A [`Store`] knows no policy: it reads rows, judges with the database's clock whether a lease is
//! over, and writes what it is told. Instants never cross the wire; only durations do, in
//! microseconds.

#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod session;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod statement;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use diesel::QueryResult;
use diesel::connection::TransactionManager;
use diesel::result::Error as DieselError;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::expected::Expected;
use super::rule::Standing;
use super::{ElectionError, Term};
use session::RawSighting;
pub use session::{RawRow, Session};
pub use statement::Args;

pub(crate) const CANDIDATE: &str = "gemstone_election_candidate";
pub(crate) const LEADER: &str = "gemstone_election_leader";
pub(crate) const TENURE: &str = "gemstone_election_tenure";

/// What one database is asked. Names in braces are values, see [`Args`].
pub struct Statements {
    /// The leader row and how long its lease has to go, without a lock.
    look: &'static str,
    /// The same and how long the caller's registration has to go.
    glance: &'static str,
    /// The leader row, locked, judged by a clock read after the lock was taken.
    lock: &'static str,
    /// Makes the leader row exist, without a leader: a row that is missing cannot be locked.
    ensure_row: &'static str,
    /// The highest term in the history.
    last_term: &'static str,
    take: &'static str,
    renew: &'static str,
    release: &'static str,
    /// Registers the candidate, or refreshes it.
    beat: &'static str,
    withdraw: &'static str,
    list: &'static str,
    /// Of the first `expire` registrations from the candidate `text` of `ns` onwards, also in other
    /// namespaces: those that ended more than a day ago.
    dead_near: &'static str,
    /// Removes a registration that ended more than a day ago.
    forget: &'static str,
    begin_tenure: &'static str,
    end_tenure: &'static str,
    /// Ends the last tenure at the instant at which its lease ran out.
    end_tenure_at_lapse: &'static str,
    forget_tenures: &'static str,
    /// The read models, whole rows with instants as microseconds since 1970.
    candidates: &'static str,
    leader_row: &'static str,
    history: &'static str,
    /// Refreshes many candidates, the JSON array `text` of [`Ask`]s.
    beat_all: &'static str,
    /// The leader rows of the namespaces in `text`, without a lock.
    look_all: &'static str,
    /// Holds the leader row against a change of leader until the transaction ends, and gives a row
    /// if the tenure is current.
    fence: &'static str,
    /// Whether the table named `text` has the column named `me`: 0 or 1.
    has_column: &'static str,
}

/// What a look at a namespace shows.
#[derive(Debug, Default)]
pub struct Glance {
    /// `None` when the namespace has no row yet.
    pub standing: Option<Standing>,
    /// The look renewed the caller's lease and registration.
    pub renewed: bool,
    /// Microseconds left of the caller's registration; `None` when it has none.
    pub registration_left: Option<i64>,
}

impl Glance {
    #[cfg(any(test, feature = "mysql", feature = "sqlite"))]
    fn is_led_by(&self, args: &Args<'_>) -> bool {
        let leader = self.standing.and_then(Standing::leader);
        leader.is_some() && leader == Uuid::try_parse(args.me).ok()
    }
}

/// One tenure, or one candidate, of a statement about many.
#[derive(Debug, Clone, serde::Serialize)]
pub struct Ask {
    pub ns: Arc<str>,
    pub me: Uuid,
    pub term: i64,
    /// Microseconds.
    pub expire: i64,
}

impl Ask {
    /// What names the tenure in an answer about many.
    pub(crate) fn tenure(&self) -> String {
        format!("{} {} {}", self.term, self.me, self.ns)
    }
}

fn as_json<A: serde::Serialize>(asks: &[A]) -> Result<String, ElectionError> {
    serde_json::to_string(asks)
        .map_err(|error| ElectionError::from(DieselError::SerializationError(Box::new(error))))
}

/// What an attempt to lock the leader row gives.
#[derive(Debug)]
pub enum Lock {
    Taken(Standing),
    /// Another session holds it.
    Busy,
    Absent,
}

/// The rows of an election, over one diesel connection.
pub trait Store: Session {
    #[doc(hidden)]
    const SQL: &'static Statements;

    /// The least time a call tries again while another session is in the way.
    const PATIENCE: Duration = Duration::from_secs(2);

    /// The longest pause between two such tries.
    const LONGEST_PAUSE: Duration = Duration::from_millis(40);

    /// Runs `work` in a transaction that sees what is committed; in one that the caller has open,
    /// as a savepoint of it.
    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError>;

    /// Whether a read without a lock shows what the database holds now.
    fn reads_are_current(&mut self) -> QueryResult<bool>;

    /// The leader row, locked, or `None` if it is absent or another session holds it.
    fn lock_row(&mut self, args: &Args<'_>) -> QueryResult<Option<RawSighting>> {
        self.sighting(Self::SQL.lock, args)
    }

    fn look(&mut self, args: &Args<'_>) -> Result<Option<Standing>, ElectionError> {
        self.sighting(Self::SQL.look, args)?
            .map(|row| standing(&row, args.ns))
            .transpose()
    }

    /// What an `elect` sees first; renews both rows of a leader, if no other session is in the way.
    fn glance(&mut self, args: &Args<'_>, expected: Expected) -> Result<Glance, ElectionError> {
        match expected {
            Expected::Nothing => return self.look_and_renew(args),
            Expected::ToLead if self.renew_at_once(args)? => {
                return Ok(Glance {
                    renewed: true,
                    ..Glance::default()
                });
            }
            Expected::ToLead | Expected::ToFollow => {}
        }
        self.seen_by(Self::SQL.glance, args)
    }

    /// [`glance`](Store::glance) for whoever asks, on a connection of any kind.
    fn look_and_renew(&mut self, args: &Args<'_>) -> Result<Glance, ElectionError>;

    /// Extends the lease of whichever tenure the caller holds, and its registration. False if it
    /// does not lead or another session is in the way. For a connection of an `Election`, on which
    /// `look_and_renew` has done the same before.
    fn renew_at_once(&mut self, args: &Args<'_>) -> Result<bool, ElectionError>;

    /// What a statement with the columns of `glance` shows.
    fn seen_by(&mut self, sql: &str, args: &Args<'_>) -> Result<Glance, ElectionError> {
        let Some(row) = self.sighting(sql, args)? else {
            return Ok(Glance::default());
        };
        Ok(Glance {
            standing: Some(standing(&row, args.ns)?),
            renewed: row.3 > 0,
            registration_left: row.4,
        })
    }

    fn lock(&mut self, args: &Args<'_>) -> Result<Lock, ElectionError> {
        if let Some(row) = self.lock_row(args)? {
            return Ok(Lock::Taken(standing(&row, args.ns)?));
        }
        let exists = self.sighting(Self::SQL.look, args)?.is_some();
        Ok(if exists { Lock::Busy } else { Lock::Absent })
    }

    fn ensure_row(&mut self, args: &Args<'_>) -> QueryResult<()> {
        self.execute(Self::SQL.ensure_row, args).map(drop)
    }

    fn last_term(&mut self, args: &Args<'_>) -> Result<Term, ElectionError> {
        let stored = self.number(Self::SQL.last_term, args)?;
        term(stored, TENURE, args.ns)
    }

    /// Writes the leader row and the history of an acquisition. The row is locked.
    fn take(&mut self, args: &Args<'_>, ended: Term) -> QueryResult<()> {
        let sql = Self::SQL;
        let last = Args {
            term: ended.get(),
            ..*args
        };
        self.execute(sql.end_tenure_at_lapse, &last)?;
        self.execute(sql.take, args)?;
        self.execute(sql.begin_tenure, args)?;
        self.execute(sql.forget_tenures, args).map(drop)
    }

    /// Extends the lease of the caller's tenure. False, and nothing written, if it is over.
    fn renew(&mut self, args: &Args<'_>) -> QueryResult<bool> {
        self.execute(Self::SQL.renew, args).map(|rows| rows > 0)
    }

    /// Ends the caller's tenure. False, and nothing written, if it is over already.
    fn release(&mut self, args: &Args<'_>) -> QueryResult<bool> {
        if self.execute(Self::SQL.release, args)? == 0 {
            return Ok(false);
        }
        self.execute(Self::SQL.end_tenure, args)?;
        self.notify(args)?;
        Ok(true)
    }

    /// Registers the candidate, or refreshes it; true if it was not registered before.
    fn beat(&mut self, args: &Args<'_>) -> Result<bool, ElectionError>;

    fn withdraw(&mut self, args: &Args<'_>) -> Result<(), ElectionError> {
        Ok(self.execute(Self::SQL.withdraw, args).map(drop)?)
    }

    /// As `beat`, within [`in_transaction`](Store::in_transaction), where waits have a bound.
    fn beat_within(&mut self, args: &Args<'_>) -> Result<(), ElectionError> {
        Ok(self.execute(Self::SQL.beat, args).map(drop)?)
    }

    /// The registrations of `dead_near`: namespace and candidate.
    fn dead_near(&mut self, args: &Args<'_>) -> QueryResult<Vec<(String, String)>> {
        let rows = self.texts(Self::SQL.dead_near, args)?;
        let both = rows.iter().filter_map(|row| row.split_once(' '));
        Ok(both
            .map(|(me, ns)| (ns.to_owned(), me.to_owned()))
            .collect())
    }

    fn forget(&mut self, args: &Args<'_>) -> QueryResult<()> {
        self.execute(Self::SQL.forget, args).map(drop)
    }

    /// As `withdraw`, within [`in_transaction`](Store::in_transaction).
    fn withdraw_within(&mut self, args: &Args<'_>) -> Result<(), ElectionError> {
        self.withdraw(args)
    }

    /// Extends the leases of many tenures, and refreshes their candidates: one commit. Gives those
    /// which it extended, see [`Ask::tenure`]; the others are over, or their row is locked.
    fn renew_all(&mut self, asks: &[Ask]) -> Result<Vec<String>, ElectionError>;

    /// Registers or refreshes many candidates; one that another session holds is left out, where
    /// rows are locked one by one.
    fn beat_all(&mut self, asks: &[&Ask]) -> Result<(), ElectionError> {
        let args = Args {
            text: &as_json(asks)?,
            ..Args::default()
        };
        Ok(self.execute(Self::SQL.beat_all, &args).map(drop)?)
    }

    /// Who leads in each of many namespaces; none for one that has no row.
    fn look_all(
        &mut self,
        asks: &[Ask],
    ) -> Result<HashMap<String, Result<Standing, ElectionError>>, ElectionError> {
        let args = Args {
            text: &as_json(asks)?,
            ..Args::default()
        };
        let rows = self.raw_rows(Self::SQL.look_all, &args)?;
        let read = |(ns, leader, _, remaining, _, term): RawRow| {
            let standing = standing(&(leader, term, remaining, 0, None), &ns);
            (ns, standing)
        };
        Ok(rows.into_iter().map(read).collect())
    }

    fn fence(&mut self, args: &Args<'_>) -> QueryResult<bool> {
        self.texts(Self::SQL.fence, args)
            .map(|rows| !rows.is_empty())
    }

    /// Tells those who listen that a namespace has become vacant; with the commit.
    fn notify(&mut self, _: &Args<'_>) -> QueryResult<()> {
        Ok(())
    }

    fn list(&mut self, args: &Args<'_>) -> Result<Vec<Uuid>, ElectionError> {
        let stored = self.texts(Self::SQL.list, args)?;
        listed(stored.iter().map(String::as_str), stored.len(), args.ns)
    }

    fn has_column(&mut self, args: &Args<'_>) -> QueryResult<bool> {
        self.number(Self::SQL.has_column, args)
            .map(|columns| columns > 0)
    }

    fn candidate_rows(&mut self, args: &Args<'_>) -> QueryResult<Vec<RawRow>> {
        self.raw_rows(Self::SQL.candidates, args)
    }

    fn leader_rows(&mut self, args: &Args<'_>) -> QueryResult<Vec<RawRow>> {
        self.raw_rows(Self::SQL.leader_row, args)
    }

    fn tenure_rows(&mut self, args: &Args<'_>) -> QueryResult<Vec<RawRow>> {
        self.raw_rows(Self::SQL.history, args)
    }
}

/// Runs `work` as a savepoint of the transaction that the caller has open.
///
/// An error of `work` that has ended the whole transaction, as a deadlock does on MySQL, comes out
/// as itself; and the connection then refuses to go on, since what follows would no longer be in
/// a transaction.
fn in_savepoint<S: Store, T>(
    store: &mut S,
    work: impl FnOnce(&mut S) -> Result<T, ElectionError>,
) -> Result<T, ElectionError> {
    let mut of_work = None;
    let outcome = store.transaction(|store| {
        work(store).map_err(|error| {
            of_work = Some(error);
            ElectionError::from(DieselError::RollbackTransaction)
        })
    });
    let Some(error) = of_work else { return outcome };
    let rolled_back = matches!(
        outcome,
        Err(ElectionError::Database {
            source: DieselError::RollbackTransaction,
            ..
        })
    );
    if !rolled_back {
        S::TransactionManager::transaction_manager_status_mut(store).set_in_error();
    }
    Err(error)
}

/// [`Store::renew_all`] where it takes several statements: `renewable` says, with the rows locked,
/// which tenures are current, and `extend` extends exactly those.
#[cfg(any(feature = "mysql", feature = "sqlite"))]
fn renew_in_steps<S: Store>(
    store: &mut S,
    asks: &[Ask],
    renewable: impl FnOnce(&mut S, &Args<'_>) -> QueryResult<Vec<String>>,
    extend: &str,
) -> Result<Vec<String>, ElectionError> {
    use std::collections::HashSet;

    store.in_transaction(|store| {
        let json = as_json(asks)?;
        let renewed = renewable(
            store,
            &Args {
                text: &json,
                ..Args::default()
            },
        )?;
        let current: HashSet<&str> = renewed.iter().map(String::as_str).collect();
        let current: Vec<&Ask> = asks
            .iter()
            .filter(|ask| current.contains(&*ask.tenure()))
            .collect();
        let json = as_json(&current)?;
        let args = Args {
            text: &json,
            ..Args::default()
        };
        store.execute(extend, &args)?;
        store.beat_all(&current)?;
        Ok(renewed)
    })
}

fn standing(row: &RawSighting, ns: &str) -> Result<Standing, ElectionError> {
    let (leader_id, stored_term, remaining, ..) = row;
    let term = term(*stored_term, LEADER, ns)?;
    match (leader_id, remaining) {
        (None, None) => Ok(Standing::Vacant { term }),
        (Some(by), Some(left)) => {
            let by = candidate(by, LEADER, ns)?;
            Ok(match u64::try_from(*left) {
                Ok(left) if left > 0 => Standing::Held {
                    by,
                    term,
                    remaining: Duration::from_micros(left),
                },
                _ => Standing::Lapsed { by, term },
            })
        }
        (Some(_), None) => Err(corrupt(
            LEADER,
            ns,
            "leader_id without a usable lease_expires_at",
        )),
        (None, Some(_)) => Err(corrupt(LEADER, ns, "lease_expires_at without leader_id")),
    }
}

/// The ids of about as many registrations.
fn listed<'a>(
    stored: impl Iterator<Item = &'a str>,
    about: usize,
    ns: &str,
) -> Result<Vec<Uuid>, ElectionError> {
    let mut ids = Vec::with_capacity(about);
    for one in stored {
        ids.push(candidate(one, CANDIDATE, ns)?);
    }
    Ok(ids)
}

/// A stored candidate id, in the one shape in which it is written.
pub(crate) fn candidate(
    stored: &str,
    table: &'static str,
    ns: &str,
) -> Result<Uuid, ElectionError> {
    // Not `any`, which stops at the first and so looks at one byte after the other.
    let upper = stored
        .bytes()
        .fold(false, |found, byte| found | byte.is_ascii_uppercase());
    match stored.parse::<Hyphenated>() {
        Ok(id) if !upper => Ok(id.into_uuid()),
        _ => Err(corrupt(
            table,
            ns,
            &format!("{stored:?} is no candidate id: a lower-case UUID with hyphens"),
        )),
    }
}

pub(crate) fn term(stored: i64, table: &'static str, ns: &str) -> Result<Term, ElectionError> {
    Term::from_stored(stored)
        .ok_or_else(|| corrupt(table, ns, &format!("term {stored} is negative")))
}

pub(crate) fn corrupt(table: &'static str, ns: &str, detail: &str) -> ElectionError {
    ElectionError::Corrupt {
        table,
        ns: ns.to_owned(),
        detail: detail.to_owned(),
    }
}

use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use super::store::{CANDIDATE, LEADER, RawRow, TENURE, candidate, corrupt, term};
use super::{ElectionError, Term};

/// Who leads a namespace right now, as [`leader`](super::leader) reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The candidate that holds the lease.
    pub candidate_id: Uuid,
    /// The term it leads under.
    pub term: Term,
    /// How much of the lease was left, by the database's clock, when the row was read.
    pub remaining: Duration,
}

/// A registered candidate and its heartbeat expiry: one row of `gemstone_election_candidate`.
///
/// The key is the namespace and the candidate id. A read model: see
/// [`Election::candidates`](super::Election::candidates).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionCandidate {
    /// The namespace.
    pub ns: String,
    /// The candidate.
    pub candidate_id: Uuid,
    /// When the last heartbeat was written, by the database's clock.
    pub last_heartbeat_at: DateTime<Utc>,
    /// When the registration ends unless another heartbeat comes.
    pub expires_at: DateTime<Utc>,
}

/// The leader lease of a namespace: one row of `gemstone_election_leader`.
///
/// The key is the namespace, so there is at most one leader for each. The row stays when nobody
/// leads; `leader_id` and `lease_expires_at` are then empty or in the past.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ElectionLeader {
    /// The namespace.
    pub ns: String,
    /// The last candidate that held the lease, until it is released.
    pub leader_id: Option<Uuid>,
    /// When that lease ends, by the database's clock.
    pub lease_expires_at: Option<DateTime<Utc>>,
    /// When the row was last written.
    pub updated_at: DateTime<Utc>,
    /// The term of the last acquisition.
    pub term: Term,
}

/// One tenure of the history: who led a namespace under which term, from when to when.
///
/// One row of `gemstone_election_tenure`. The newest thousand of each namespace are kept.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TenureRecord {
    /// The namespace.
    pub ns: String,
    /// The term.
    pub term: Term,
    /// The candidate that led.
    pub leader_id: Uuid,
    /// When it was elected.
    pub began_at: DateTime<Utc>,
    /// When its tenure ended; `None` while nobody has written the end, even if the lease ran out.
    pub ended_at: Option<DateTime<Utc>>,
    /// Why it ended.
    pub ended_by: Option<Ending>,
}

/// What the history says of the end of a tenure; [`Lost`](super::Lost) is what its guard was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// The lease was released, by its holder or by
    /// [`unregister_candidate`](super::unregister_candidate).
    Resigned,
    /// The lease ran out; `ended_at` is the instant at which it did.
    Expired,
    /// Something else than this crate changed the row; `ended_at` is the latest possible instant.
    Superseded,
}

impl Ending {
    pub(crate) fn as_stored(self) -> &'static str {
        match self {
            Ending::Resigned => "resigned",
            Ending::Expired => "expired",
            Ending::Superseded => "superseded",
        }
    }

    pub(crate) fn from_stored(stored: &str) -> Option<Ending> {
        [Ending::Resigned, Ending::Expired, Ending::Superseded]
            .into_iter()
            .find(|ending| ending.as_stored() == stored)
    }
}

impl std::fmt::Display for Ending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_stored())
    }
}

pub(crate) fn candidate_from_row(row: RawRow) -> Result<ElectionCandidate, ElectionError> {
    let (ns, id, beat, expires, _, _) = row;
    Ok(ElectionCandidate {
        candidate_id: candidate(&id.unwrap_or_default(), CANDIDATE, &ns)?,
        last_heartbeat_at: instant(Some(beat), CANDIDATE, &ns)?,
        expires_at: instant(expires, CANDIDATE, &ns)?,
        ns,
    })
}

pub(crate) fn leader_from_row(row: RawRow) -> Result<ElectionLeader, ElectionError> {
    let (ns, id, updated, expires, _, stored_term) = row;
    Ok(ElectionLeader {
        leader_id: id.map(|id| candidate(&id, LEADER, &ns)).transpose()?,
        lease_expires_at: expires
            .map(|expires| instant(Some(expires), LEADER, &ns))
            .transpose()?,
        updated_at: instant(Some(updated), LEADER, &ns)?,
        term: term(stored_term, LEADER, &ns)?,
        ns,
    })
}

pub(crate) fn tenure_from_row(row: RawRow) -> Result<TenureRecord, ElectionError> {
    let (ns, id, began, ended, ended_by, stored_term) = row;
    Ok(TenureRecord {
        term: term(stored_term, TENURE, &ns)?,
        leader_id: candidate(&id.unwrap_or_default(), TENURE, &ns)?,
        began_at: instant(Some(began), TENURE, &ns)?,
        ended_at: ended
            .map(|ended| instant(Some(ended), TENURE, &ns))
            .transpose()?,
        ended_by: ended_by
            .map(|word| {
                Ending::from_stored(&word)
                    .ok_or_else(|| corrupt(TENURE, &ns, &format!("ended_by {word:?} is not known")))
            })
            .transpose()?,
        ns,
    })
}

fn instant(
    micros: Option<i64>,
    table: &'static str,
    ns: &str,
) -> Result<DateTime<Utc>, ElectionError> {
    micros
        .and_then(DateTime::from_timestamp_micros)
        .ok_or_else(|| corrupt(table, ns, "an instant is missing or out of range"))
}

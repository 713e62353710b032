//! SQLite.
//!
//! One writer at a time holds the whole file, so `BEGIN IMMEDIATE` is the row lock. `'now'` is the
//! clock of the machine, read when a statement starts to run, after it has its lock. Instants are
//! text of one shape, with milliseconds, as `strftime` gives them.

use std::time::Duration;

use diesel::prelude::*;
use diesel::result::Error as DieselError;
use diesel::sqlite::SqliteConnection;
use diesel_migrations::EmbeddedMigrations;

use super::{
    Args, Ask, ElectionError, Glance, RawSighting, Session, Statements, Store, in_savepoint,
    renew_in_steps,
};
use crate::election::migrate::{Migrate, SQLITE_MIGRATIONS};

/// This instant.
macro_rules! now {
    () => {
        "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    };
}

/// This instant plus a duration in microseconds, by default the lease duration.
macro_rules! end {
    () => {
        end!("{expire}")
    };
    ($micros:literal) => {
        concat!(
            "strftime('%Y-%m-%d %H:%M:%f000', 'now', printf('+%d.%03d seconds', ",
            $micros,
            " / 1000000, ",
            $micros,
            " / 1000 % 1000))"
        )
    };
}

/// An instant as microseconds since 1970.
macro_rules! micros {
    ($instant:literal) => {
        concat!(
            "(CAST(strftime('%s', ",
            $instant,
            ") AS INTEGER) * 1000000",
            " + CAST(substr(strftime('%f', ",
            $instant,
            "), 4) AS INTEGER) * 1000)"
        )
    };
}

/// Microseconds from now to an instant. SQLite keeps both as whole milliseconds, which a day number
/// tells apart, being exact to 40 microseconds.
macro_rules! until {
    ($instant:literal) => {
        concat!(
            "(CAST(round((julianday(",
            $instant,
            ") - julianday('now')) * 86400000) AS INTEGER) * 1000)"
        )
    };
}

/// Extends the lease of whichever tenure the candidate holds.
macro_rules! renew {
    ($ns:literal, $me:literal, $expire:literal) => {
        concat!(
            "UPDATE gemstone_election_leader",
            " SET lease_expires_at = ",
            end!($expire),
            ", updated_at = ",
            now!(),
            " WHERE ns = ",
            $ns,
            " AND leader_id = ",
            $me,
            " AND lease_expires_at > ",
            now!()
        )
    };
}

/// Refreshes the registration, if there is one.
macro_rules! refresh {
    ($ns:literal, $me:literal, $expire:literal) => {
        concat!(
            "UPDATE gemstone_election_candidate",
            " SET last_heartbeat_at = ",
            now!(),
            ", expires_at = ",
            end!($expire),
            " WHERE ns = ",
            $ns,
            " AND candidate_id = ",
            $me
        )
    };
}

static SQL: Statements = Statements {
    look: concat!(
        "SELECT leader_id, term, ",
        until!("lease_expires_at"),
        ", 0, NULL",
        " FROM gemstone_election_leader",
        " WHERE ns = {ns}"
    ),

    // Who leads, and how long the caller's own registration lasts: a read, which takes no write lock.
    glance: concat!(
        "SELECT l.leader_id, l.term, ",
        until!("l.lease_expires_at"),
        ", 0, ",
        until!("c.expires_at"),
        " FROM gemstone_election_leader AS l",
        " LEFT JOIN gemstone_election_candidate AS c ON c.ns = l.ns AND c.candidate_id = {me}",
        " WHERE l.ns = {ns}"
    ),

    lock: concat!(
        "SELECT leader_id, term, ",
        until!("lease_expires_at"),
        ", 0, NULL",
        " FROM gemstone_election_leader",
        " WHERE ns = {ns}"
    ),

    ensure_row: concat!(
        "INSERT INTO gemstone_election_leader (ns, leader_id, lease_expires_at, updated_at, term)",
        " VALUES ({ns}, NULL, NULL, ",
        now!(),
        ", 0)",
        " ON CONFLICT (ns) DO NOTHING"
    ),

    last_term: "\
        SELECT coalesce(max(term), 0)
        FROM gemstone_election_tenure
        WHERE ns = {ns}",

    take: concat!(
        "UPDATE gemstone_election_leader",
        " SET leader_id = {me}, lease_expires_at = ",
        end!(),
        ", updated_at = ",
        now!(),
        ", term = {term}",
        " WHERE ns = {ns}"
    ),

    renew: concat!(renew!("{ns}", "{me}", "{expire}"), " AND term = {term}"),

    release: concat!(
        "UPDATE gemstone_election_leader",
        " SET leader_id = NULL, lease_expires_at = NULL, updated_at = ",
        now!(),
        " WHERE ns = {ns} AND leader_id = {me} AND term = {term} AND lease_expires_at > ",
        now!()
    ),

    beat: concat!(
        "INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)",
        " VALUES ({ns}, {me}, ",
        now!(),
        ", ",
        end!(),
        ")",
        " ON CONFLICT (ns, candidate_id) DO UPDATE",
        " SET last_heartbeat_at = excluded.last_heartbeat_at, expires_at = excluded.expires_at"
    ),

    withdraw: "\
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}",

    list: concat!(
        "SELECT candidate_id",
        " FROM gemstone_election_candidate",
        " WHERE ns = {ns} AND expires_at > ",
        now!()
    ),

    dead_near: "\
        SELECT candidate_id || ' ' || ns
        FROM (
            SELECT ns, candidate_id, expires_at
            FROM gemstone_election_candidate
            WHERE (ns, candidate_id) >= ({ns}, {text})
            ORDER BY ns, candidate_id
            LIMIT {expire}
        )
        WHERE expires_at < strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 day')",

    forget: "\
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}
          AND expires_at < strftime('%Y-%m-%d %H:%M:%f000', 'now', '-1 day')",

    begin_tenure: concat!(
        "INSERT INTO gemstone_election_tenure (ns, term, leader_id, began_at)",
        " VALUES ({ns}, {term}, {me}, ",
        now!(),
        ")"
    ),

    end_tenure: concat!(
        "UPDATE gemstone_election_tenure",
        " SET ended_at = ",
        now!(),
        ", ended_by = {text}",
        " WHERE ns = {ns} AND term = {term} AND ended_at IS NULL"
    ),

    end_tenure_at_lapse: "\
        UPDATE gemstone_election_tenure AS t
        SET ended_at = coalesce(l.lease_expires_at, l.updated_at),
            ended_by = CASE WHEN t.leader_id = l.leader_id THEN 'expired' ELSE 'superseded' END
        FROM gemstone_election_leader AS l
        WHERE l.ns = t.ns AND t.ns = {ns} AND t.term = {term} AND t.ended_at IS NULL",

    forget_tenures: "\
        DELETE FROM gemstone_election_tenure
        WHERE ns = {ns} AND term <= {term} - 1000",

    candidates: concat!(
        "SELECT ns, candidate_id, ",
        micros!("last_heartbeat_at"),
        ", ",
        micros!("expires_at"),
        ", NULL, 0",
        " FROM gemstone_election_candidate",
        " WHERE ns = {ns}",
        " ORDER BY candidate_id"
    ),

    leader_row: concat!(
        "SELECT ns, leader_id, ",
        micros!("updated_at"),
        ", ",
        micros!("lease_expires_at"),
        ", NULL, term",
        " FROM gemstone_election_leader",
        " WHERE ns = {ns}"
    ),

    history: concat!(
        "SELECT ns, leader_id, ",
        micros!("began_at"),
        ", ",
        micros!("ended_at"),
        ", ended_by, term",
        " FROM gemstone_election_tenure",
        " WHERE ns = {ns}",
        " ORDER BY term DESC",
        " LIMIT {expire}"
    ),

    beat_all: concat!(
        "INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)",
        " SELECT json_extract(asked.value, '$.ns'), json_extract(asked.value, '$.me'), ",
        now!(),
        ", ",
        end!("json_extract(asked.value, '$.expire')"),
        " FROM json_each({text}) AS asked",
        // Without a condition SQLite takes the next ON for that of a join.
        " WHERE true",
        " ON CONFLICT (ns, candidate_id) DO UPDATE",
        " SET last_heartbeat_at = excluded.last_heartbeat_at, expires_at = excluded.expires_at"
    ),

    look_all: concat!(
        "SELECT l.ns, l.leader_id, 0, ",
        until!("l.lease_expires_at"),
        ", NULL, l.term",
        " FROM json_each({text}) AS asked",
        " JOIN gemstone_election_leader AS l ON l.ns = json_extract(asked.value, '$.ns')"
    ),

    // A write that changes nothing takes the lock of the file for the rest of the transaction.
    fence: concat!(
        "UPDATE gemstone_election_leader SET ns = ns",
        " WHERE ns = {ns} AND leader_id = {me} AND term = {term} AND lease_expires_at > ",
        now!(),
        " RETURNING ns"
    ),

    has_column: "\
        SELECT count(*)
        FROM pragma_table_info({text})
        WHERE name = {me}",
};

const RENEWABLE: &str = concat!(
    "SELECT l.term || ' ' || l.leader_id || ' ' || l.ns",
    " FROM json_each({text}) AS asked",
    " JOIN gemstone_election_leader AS l",
    " ON l.ns = json_extract(asked.value, '$.ns')",
    " AND l.leader_id = json_extract(asked.value, '$.me')",
    " AND l.term = json_extract(asked.value, '$.term')",
    " WHERE l.lease_expires_at > ",
    now!()
);

const EXTEND: &str = concat!(
    "UPDATE gemstone_election_leader AS l",
    " SET lease_expires_at = ",
    end!("json_extract(asked.value, '$.expire')"),
    ", updated_at = ",
    now!(),
    " FROM json_each({text}) AS asked",
    " WHERE l.ns = json_extract(asked.value, '$.ns')",
    " AND l.leader_id = json_extract(asked.value, '$.me')",
    " AND l.term = json_extract(asked.value, '$.term')"
);

const RENEW: &str = renew!("{ns}", "{me}", "{expire}");
const REFRESH: &str = refresh!("{ns}", "{me}", "{expire}");

/// Both of a leader's rows in one statement, or neither: a trigger is the one procedure that SQLite
/// stores. It is temporary, so it is of one connection, and in nobody's file.
pub const PROCEDURES: &str = concat!(
    "PRAGMA temp_store = MEMORY;",
    " CREATE TEMP VIEW leasehold_renewal (ns, me, expire) AS SELECT NULL, NULL, NULL;",
    " CREATE TEMP TRIGGER leasehold_renew INSTEAD OF INSERT ON leasehold_renewal BEGIN ",
    renew!("NEW.ns", "NEW.me", "NEW.expire"),
    "; SELECT RAISE(ABORT, 'leasehold: not renewed') WHERE changes() = 0; ",
    refresh!("NEW.ns", "NEW.me", "NEW.expire"),
    "; SELECT RAISE(ABORT, 'leasehold: not renewed') WHERE changes() = 0; END"
);
const RENEW_AT_ONCE: &str = "INSERT INTO leasehold_renewal VALUES ({ns}, {me}, {expire})";
const NOT_RENEWED: &str = "leasehold: not renewed";

impl Store for SqliteConnection {
    const SQL: &'static Statements = &SQL;

    // One lock for the whole file, and no queue before it.
    const PATIENCE: Duration = Duration::from_secs(5);
    const LONGEST_PAUSE: Duration = Duration::from_millis(2);

    /// The write comes first: a transaction that has only read cannot always become a writer.
    fn lock_row(&mut self, args: &Args<'_>) -> QueryResult<Option<RawSighting>> {
        self.execute(SQL.ensure_row, args)?;
        self.sighting(SQL.lock, args)
    }

    /// On a connection of any kind, without [`PROCEDURES`]: the look, and a transaction that reads
    /// nothing.
    fn look_and_renew(&mut self, args: &Args<'_>) -> Result<Glance, ElectionError> {
        let mut seen = self.seen_by(SQL.glance, args)?;
        if seen.is_led_by(args) {
            let renewed = self.immediate_transaction(|conn| {
                let both = conn.execute(RENEW, args)? > 0 && conn.execute(REFRESH, args)? > 0;
                both.then_some(()).ok_or(DieselError::RollbackTransaction)
            });
            seen.renewed = match renewed {
                Err(DieselError::RollbackTransaction) => false,
                outcome => outcome.map(|()| true)?,
            };
        }
        Ok(seen)
    }

    fn renew_at_once(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        match self.execute(RENEW_AT_ONCE, args) {
            Err(DieselError::DatabaseError(_, said)) if said.message() == NOT_RENEWED => Ok(false),
            outcome => Ok(outcome.map(|_| true)?),
        }
    }

    fn beat(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        if self.execute(REFRESH, args)? > 0 {
            return Ok(false);
        }
        self.beat_within(args)?;
        Ok(true)
    }

    fn renew_all(&mut self, asks: &[Ask]) -> Result<Vec<String>, ElectionError> {
        renew_in_steps(self, asks, |conn, args| conn.texts(RENEWABLE, args), EXTEND)
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        if self.depth()? > 0 {
            return in_savepoint(self, work);
        }
        self.immediate_transaction(work)
    }

    /// A transaction that has read keeps its snapshot until it writes, and the write then fails
    /// if the snapshot is old.
    fn reads_are_current(&mut self) -> QueryResult<bool> {
        Ok(self.depth()? == 0)
    }
}

impl Migrate for SqliteConnection {
    fn migrations() -> EmbeddedMigrations {
        SQLITE_MIGRATIONS
    }

    fn alone<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        self.in_transaction(work)
    }
}

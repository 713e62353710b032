//! PostgreSQL.
//!
//! `clock_timestamp()` moves while a transaction runs; `now()` and `CURRENT_TIMESTAMP` do not.
//! Where a clock is read beside a row lock, the lock stands in a `MATERIALIZED` part of its own,
//! so that it is held before the clock is read.

use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel_migrations::EmbeddedMigrations;
use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::{
    Args, Ask, ElectionError, Glance, Session, Statements, Store, as_json, in_savepoint, listed,
};
use crate::election::migrate::{Migrate, POSTGRES_MIGRATIONS};

/// Renews the leader row of the caller's tenure, of which `$which` may ask more, and gives the place
/// of the registration. No lock is waited for, and a candidate that does not lead locks and writes
/// nothing. The clock judges what the locking part read, and so is read after it in every plan.
///
/// The locked rows are found again by their place, which is quicker than by their key. A place is one
/// only within one file, so the key is compared as well: a table may be partitioned. A row that moved
/// before it was locked is not found, and the full transaction does the rest.
macro_rules! renewed {
    ($which:literal) => {
        concat!(
            "\
        WITH held AS MATERIALIZED (
            SELECT l.ctid AS lease, l.lease_expires_at, c.ctid AS registration
            FROM gemstone_election_leader AS l, gemstone_election_candidate AS c
            WHERE l.ns = {ns} AND l.leader_id = {me}",
            $which,
            "
              AND c.ns = {ns} AND c.candidate_id = {me}
            FOR NO KEY UPDATE SKIP LOCKED
        ), renewed AS (
            UPDATE gemstone_election_leader AS l
            SET lease_expires_at = clock_timestamp() + {expire} * interval '1 microsecond',
                updated_at = clock_timestamp()
            WHERE l.ctid = (SELECT lease FROM held WHERE lease_expires_at > clock_timestamp())
              AND l.ns = {ns}
            RETURNING (SELECT registration FROM held) AS registration
        )"
        )
    };
}

/// Refreshes the caller's registration at the place that the query `$place` gives and has locked.
macro_rules! refresh {
    ($place:literal) => {
        concat!(
            "\
        UPDATE gemstone_election_candidate AS c
        SET last_heartbeat_at = clock_timestamp(),
            expires_at = clock_timestamp() + {expire} * interval '1 microsecond'
        WHERE c.ctid = (",
            $place,
            ") AND c.ns = {ns} AND c.candidate_id = {me}"
        )
    };
}

/// Refreshes the registration whose place [`renewed`] gave.
macro_rules! refresh_renewed {
    () => {
        refresh!("SELECT registration FROM renewed")
    };
}

static SQL: Statements = Statements {
    look: "\
        SELECT leader_id, term,
               CASE WHEN isfinite(lease_expires_at) THEN CAST(extract(epoch FROM
                   lease_expires_at - clock_timestamp()) * 1000000 AS bigint) END,
               CAST(0 AS bigint),
               CAST(NULL AS bigint)
        FROM gemstone_election_leader
        WHERE ns = {ns}",

    // Who leads, and how long the caller's own registration lasts: one exchange, no lock.
    glance: "\
        SELECT l.leader_id, l.term,
               CASE WHEN isfinite(l.lease_expires_at) THEN CAST(extract(epoch FROM
                   l.lease_expires_at - clock_timestamp()) * 1000000 AS bigint) END,
               CAST(0 AS bigint),
               CASE WHEN isfinite(c.expires_at) THEN CAST(extract(epoch FROM
                   c.expires_at - clock_timestamp()) * 1000000 AS bigint) END
        FROM gemstone_election_leader AS l
        LEFT JOIN gemstone_election_candidate AS c ON c.ns = l.ns AND c.candidate_id = {me}
        WHERE l.ns = {ns}",

    // SKIP LOCKED: a row that another session holds is not waited for here, so the clock that
    // is read next is the clock of the moment at which the lock was taken.
    lock: "\
        WITH held AS MATERIALIZED (
            SELECT leader_id, term, lease_expires_at
            FROM gemstone_election_leader
            WHERE ns = {ns}
            FOR UPDATE SKIP LOCKED
        )
        SELECT leader_id, term,
               CASE WHEN isfinite(lease_expires_at) THEN CAST(extract(epoch FROM
                   lease_expires_at - clock_timestamp()) * 1000000 AS bigint) END,
               CAST(0 AS bigint),
               CAST(NULL AS bigint)
        FROM held",

    ensure_row: "\
        INSERT INTO gemstone_election_leader (ns, leader_id, lease_expires_at, updated_at, term)
        VALUES ({ns}, NULL, NULL, clock_timestamp(), 0)
        ON CONFLICT (ns) DO NOTHING",

    last_term: "\
        SELECT CAST(coalesce(max(term), 0) AS bigint)
        FROM gemstone_election_tenure
        WHERE ns = {ns}",

    take: "\
        UPDATE gemstone_election_leader
        SET leader_id = {me},
            lease_expires_at = clock_timestamp() + {expire} * interval '1 microsecond',
            updated_at = clock_timestamp(),
            term = {term}
        WHERE ns = {ns}",

    renew: "\
        UPDATE gemstone_election_leader
        SET lease_expires_at = clock_timestamp() + {expire} * interval '1 microsecond',
            updated_at = clock_timestamp()
        WHERE ns = {ns} AND leader_id = {me} AND term = {term}
          AND lease_expires_at > clock_timestamp()",

    release: "\
        UPDATE gemstone_election_leader
        SET leader_id = NULL, lease_expires_at = NULL, updated_at = clock_timestamp()
        WHERE ns = {ns} AND leader_id = {me} AND term = {term}
          AND lease_expires_at > clock_timestamp()",

    beat: "\
        INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
        VALUES ({ns}, {me}, clock_timestamp(),
                clock_timestamp() + {expire} * interval '1 microsecond')
        ON CONFLICT (ns, candidate_id) DO UPDATE
        SET last_heartbeat_at = excluded.last_heartbeat_at, expires_at = excluded.expires_at",

    withdraw: "\
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}",

    // One long text: rows have a cost of their own, on both sides.
    list: "\
        SELECT string_agg(candidate_id, ',')
        FROM gemstone_election_candidate
        WHERE ns = {ns} AND expires_at > clock_timestamp()
        HAVING string_agg(candidate_id, ',') IS NOT NULL",

    dead_near: "\
        SELECT concat_ws(' ', candidate_id, ns)
        FROM (
            SELECT ns, candidate_id, expires_at
            FROM gemstone_election_candidate
            WHERE (ns, candidate_id) >= ({ns}, {text})
            ORDER BY ns, candidate_id
            LIMIT {expire}
        ) AS near
        WHERE expires_at < clock_timestamp() - interval '1 day'",

    forget: "\
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}
          AND expires_at < clock_timestamp() - interval '1 day'",

    begin_tenure: "\
        INSERT INTO gemstone_election_tenure (ns, term, leader_id, began_at)
        VALUES ({ns}, {term}, {me}, clock_timestamp())",

    end_tenure: "\
        UPDATE gemstone_election_tenure
        SET ended_at = clock_timestamp(), ended_by = {text}
        WHERE ns = {ns} AND term = {term} AND ended_at IS NULL",

    end_tenure_at_lapse: "\
        UPDATE gemstone_election_tenure AS t
        SET ended_at = coalesce(l.lease_expires_at, l.updated_at),
            ended_by = CASE WHEN t.leader_id = l.leader_id THEN 'expired' ELSE 'superseded' END
        FROM gemstone_election_leader AS l
        WHERE l.ns = t.ns AND t.ns = {ns} AND t.term = {term} AND t.ended_at IS NULL",

    forget_tenures: "\
        DELETE FROM gemstone_election_tenure
        WHERE ns = {ns} AND term <= {term} - 1000",

    candidates: "\
        SELECT ns, candidate_id,
               CAST(extract(epoch FROM last_heartbeat_at) * 1000000 AS bigint),
               CAST(extract(epoch FROM expires_at) * 1000000 AS bigint),
               CAST(NULL AS text), CAST(0 AS bigint)
        FROM gemstone_election_candidate
        WHERE ns = {ns}
        ORDER BY candidate_id",

    leader_row: "\
        SELECT ns, leader_id,
               CAST(extract(epoch FROM updated_at) * 1000000 AS bigint),
               CAST(extract(epoch FROM lease_expires_at) * 1000000 AS bigint),
               CAST(NULL AS text), term
        FROM gemstone_election_leader
        WHERE ns = {ns}",

    history: "\
        SELECT ns, leader_id,
               CAST(extract(epoch FROM began_at) * 1000000 AS bigint),
               CAST(extract(epoch FROM ended_at) * 1000000 AS bigint),
               CAST(ended_by AS text), term
        FROM gemstone_election_tenure
        WHERE ns = {ns}
        ORDER BY term DESC
        LIMIT {expire}",

    // A registration that another session holds is left out; it is asked for again soon.
    beat_all: "\
        WITH asked AS MATERIALIZED (
            SELECT ns, me, expire
            FROM json_to_recordset(CAST({text} AS json)) AS asked(ns text, me text, expire bigint)
        ), registered AS MATERIALIZED (
            SELECT c.ns, c.candidate_id, asked.expire
            FROM asked
            JOIN gemstone_election_candidate AS c ON c.ns = asked.ns AND c.candidate_id = asked.me
            FOR NO KEY UPDATE OF c SKIP LOCKED
        ), refreshed AS (
            UPDATE gemstone_election_candidate AS c
            SET last_heartbeat_at = clock_timestamp(),
                expires_at = clock_timestamp() + registered.expire * interval '1 microsecond'
            FROM registered
            WHERE c.ns = registered.ns AND c.candidate_id = registered.candidate_id
        )
        INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
        SELECT ns, me, clock_timestamp(), clock_timestamp() + expire * interval '1 microsecond'
        FROM asked
        WHERE NOT EXISTS (SELECT FROM gemstone_election_candidate AS c
                          WHERE c.ns = asked.ns AND c.candidate_id = asked.me)
        ON CONFLICT (ns, candidate_id) DO NOTHING",

    look_all: "\
        SELECT l.ns, l.leader_id, CAST(0 AS bigint),
               CASE WHEN isfinite(l.lease_expires_at) THEN CAST(extract(epoch FROM
                   l.lease_expires_at - clock_timestamp()) * 1000000 AS bigint) END,
               CAST(NULL AS text), l.term
        FROM json_to_recordset(CAST({text} AS json)) AS asked(ns text)
        JOIN gemstone_election_leader AS l ON l.ns = asked.ns",

    // A beat of the same tenure goes on beside it; a takeover, which locks FOR UPDATE, waits.
    fence: "\
        WITH held AS MATERIALIZED (
            SELECT ns, lease_expires_at
            FROM gemstone_election_leader
            WHERE ns = {ns} AND leader_id = {me} AND term = {term}
            FOR KEY SHARE
        )
        SELECT ns FROM held WHERE lease_expires_at > clock_timestamp()",

    has_column: "\
        SELECT count(*)
        FROM pg_attribute
        WHERE attrelid = to_regclass({text}) AND attname = {me} AND NOT attisdropped",
};

/// Wakes the followers of the namespace, see `Open::listen`.
const NOTIFY: &str = "SELECT CAST(pg_notify('gemstone_election', {ns}) AS text)";

/// A wait on another session is ended by the server after this long.
const BOUND_WAITS: &str = "SET LOCAL lock_timeout = '2s'";
/// In a transaction of our own, a client that is stopped or cut off in its middle is given up as
/// well, so that it does not keep the row.
const BOUND_OWN: &str = "\
    SET LOCAL lock_timeout = '2s';
    SET LOCAL idle_in_transaction_session_timeout = '5s'";
const LOCK_TIMEOUT: &str = "SELECT current_setting('lock_timeout')";
const SET_LOCK_TIMEOUT: &str = "SELECT set_config('lock_timeout', {text}, true)";

const REFRESH: &str = refresh!(
    "
        SELECT ctid FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}
        FOR NO KEY UPDATE SKIP LOCKED"
);

/// Renews many tenures and their candidates: one exchange, one commit. `NO KEY` lets the tenure's
/// own fenced transactions go on.
const RENEW_ALL: &str = "\
    WITH asked AS MATERIALIZED (
        SELECT ns, me, term, expire
        FROM json_to_recordset(CAST({text} AS json))
            AS asked(ns text, me text, term bigint, expire bigint)
    ), held AS MATERIALIZED (
        SELECT l.ns, asked.me, asked.expire, l.lease_expires_at
        FROM asked
        JOIN gemstone_election_leader AS l
          ON l.ns = asked.ns AND l.leader_id = asked.me AND l.term = asked.term
        FOR NO KEY UPDATE OF l SKIP LOCKED
    ), renewed AS (
        UPDATE gemstone_election_leader AS l
        SET lease_expires_at = clock_timestamp() + held.expire * interval '1 microsecond',
            updated_at = clock_timestamp()
        FROM held
        WHERE l.ns = held.ns AND held.lease_expires_at > clock_timestamp()
        RETURNING l.ns, l.term, held.me, held.expire
    ), registered AS MATERIALIZED (
        SELECT c.ns, c.candidate_id, renewed.expire
        FROM renewed
        JOIN gemstone_election_candidate AS c ON c.ns = renewed.ns AND c.candidate_id = renewed.me
        FOR NO KEY UPDATE OF c SKIP LOCKED
    ), refreshed AS (
        UPDATE gemstone_election_candidate AS c
        SET last_heartbeat_at = clock_timestamp(),
            expires_at = clock_timestamp() + registered.expire * interval '1 microsecond'
        FROM registered
        WHERE c.ns = registered.ns AND c.candidate_id = registered.candidate_id
    ), added AS (
        INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
        SELECT ns, me, clock_timestamp(), clock_timestamp() + expire * interval '1 microsecond'
        FROM renewed
        WHERE NOT EXISTS (SELECT FROM gemstone_election_candidate AS c
                          WHERE c.ns = renewed.ns AND c.candidate_id = renewed.me)
        ON CONFLICT (ns, candidate_id) DO NOTHING
    )
    SELECT concat_ws(' ', term, me, ns) FROM renewed";

/// Renews both rows of the leader: one exchange, one commit.
const RENEW: &str = concat!(renewed!(""), " ", refresh_renewed!());

/// The same for one tenure and no other of the same candidate.
const RENEW_TENURE: &str = concat!(renewed!(" AND l.term = {term}"), " ", refresh_renewed!());

/// Renews both rows of the leader, or says who leads: one exchange for whoever asks.
const RENEW_OR_LOOK: &str = concat!(
    renewed!(""),
    ", beat AS (",
    refresh_renewed!(),
    ")
        SELECT l.leader_id, l.term,
               CASE WHEN isfinite(l.lease_expires_at) THEN CAST(extract(epoch FROM
                   l.lease_expires_at - clock_timestamp()) * 1000000 AS bigint) END,
               (SELECT count(*) FROM renewed),
               (SELECT CAST(extract(epoch FROM c.expires_at - clock_timestamp()) * 1000000 AS bigint)
                FROM gemstone_election_candidate AS c
                WHERE c.ns = {ns} AND c.candidate_id = {me} AND isfinite(c.expires_at)
                  AND NOT EXISTS (SELECT FROM renewed))
        FROM gemstone_election_leader AS l
        WHERE l.ns = {ns}"
);

impl Store for PgConnection {
    const SQL: &'static Statements = &SQL;

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        if self.depth()? == 0 {
            return self.build_transaction().read_committed().run(|conn| {
                conn.batch_execute(BOUND_OWN)?;
                work(conn)
            });
        }
        in_savepoint(self, |conn| {
            // What is set here would outlive the savepoint; a rollback of it restores it.
            let callers = conn.texts(LOCK_TIMEOUT, &Args::default())?.concat();
            conn.batch_execute(BOUND_WAITS)?;
            let result = work(conn)?;
            let restore = Args {
                text: &callers,
                ..Args::default()
            };
            conn.texts(SET_LOCK_TIMEOUT, &restore)?;
            Ok(result)
        })
    }

    fn look_and_renew(&mut self, args: &Args<'_>) -> Result<Glance, ElectionError> {
        self.seen_by(RENEW_OR_LOOK, args)
    }

    fn renew_at_once(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        Ok(self.execute(RENEW, args)? > 0)
    }

    /// One alone is renewed by a cheaper statement, which does not register it anew.
    fn renew_all(&mut self, asks: &[Ask]) -> Result<Vec<String>, ElectionError> {
        if let [only] = asks {
            let args = Args {
                ns: &only.ns,
                me: &only.me.to_string(),
                term: only.term,
                expire: only.expire,
                ..Args::default()
            };
            if self.execute(RENEW_TENURE, &args)? > 0 {
                return Ok(vec![only.tenure()]);
            }
        }
        let args = Args {
            text: &as_json(asks)?,
            ..Args::default()
        };
        Ok(self.texts(RENEW_ALL, &args)?)
    }

    fn notify(&mut self, args: &Args<'_>) -> QueryResult<()> {
        self.texts(NOTIFY, args).map(drop)
    }

    /// A registration that exists is refreshed by one statement, which waits for nobody; to add one
    /// may mean to wait for another session that does, and that wait is bounded.
    fn beat(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        if self.execute(REFRESH, args)? > 0 {
            return Ok(false);
        }
        self.in_transaction(|conn| conn.beat_within(args))?;
        Ok(true)
    }

    fn withdraw_within(&mut self, args: &Args<'_>) -> Result<(), ElectionError> {
        Ok(self.execute(SQL.withdraw, args).map(drop)?)
    }

    /// A plan that the server keeps is one for a namespace of middling size, and takes half as long
    /// again in a large one.
    fn list(&mut self, args: &Args<'_>) -> Result<Vec<Uuid>, ElectionError> {
        let mut row = self.texts_planned_anew(SQL.list, args)?;
        let all = row.pop().unwrap_or_default();
        let about = all.len() / Hyphenated::LENGTH;
        listed(all.split_terminator(','), about, args.ns)
    }

    fn withdraw(&mut self, args: &Args<'_>) -> Result<(), ElectionError> {
        self.in_transaction(|conn| Ok(conn.execute(SQL.withdraw, args).map(drop)?))
    }

    /// Above read committed a plain read shows the transaction's snapshot.
    fn reads_are_current(&mut self) -> QueryResult<bool> {
        if self.depth()? == 0 {
            return Ok(true);
        }
        let level: Vec<String> = self.texts(
            "SELECT current_setting('transaction_isolation')",
            &Args::default(),
        )?;
        Ok(level.iter().any(|level| level == "read committed"))
    }
}

/// The lock under which the Python package creates these tables, so that both may start at once.
const MIGRATION_LOCK: &str = "\
    SET LOCAL lock_timeout = '30s';
    SELECT pg_advisory_xact_lock(1196772959, 1145194830)";

impl Migrate for PgConnection {
    fn migrations() -> EmbeddedMigrations {
        POSTGRES_MIGRATIONS
    }

    fn alone<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        let work = |conn: &mut Self| {
            conn.batch_execute(MIGRATION_LOCK)?;
            work(conn)
        };
        if self.depth()? > 0 {
            return in_savepoint(self, work);
        }
        // What others did while the lock was awaited must be seen.
        self.build_transaction().read_committed().run(work)
    }
}

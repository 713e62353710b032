//! MySQL and MariaDB.
//!
//! `UTC_TIMESTAMP(6)` is the start of the statement, so a lock is taken by an earlier statement
//! than the one that reads it. It needs no time zone of the session. `SYSDATE(6)` is the moment at
//! which it is evaluated, in the time zone of the session, which MariaDB can set for one statement.

use std::collections::HashSet;

use diesel::connection::SimpleConnection;
use diesel::mysql::MysqlConnection;
use diesel::prelude::*;
use diesel_migrations::EmbeddedMigrations;

use super::{
    Args, Ask, ElectionError, Glance, RawSighting, Session, Statements, Store, as_json,
    in_savepoint, renew_in_steps,
};
use crate::election::migrate::{MYSQL_MIGRATIONS, Migrate};

/// The rows of the JSON array `text`.
macro_rules! asked {
    () => {
        "JSON_TABLE({text}, '$[*]' COLUMNS (
            ns VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.ns',
            me VARCHAR(36) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PATH '$.me',
            term BIGINT PATH '$.term',
            expire BIGINT PATH '$.expire')) AS asked"
    };
}

/// Who leads, and how long the caller's own registration lasts: one exchange, no lock.
macro_rules! glance {
    ($flag:literal) => {
        concat!(
            "\
            SELECT l.leader_id, l.term,
                   TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), l.lease_expires_at),
                   CAST(",
            $flag,
            " AS SIGNED),
                   TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), c.expires_at)
            FROM gemstone_election_leader AS l
            LEFT JOIN gemstone_election_candidate AS c ON c.ns = l.ns AND c.candidate_id = {me}
            WHERE l.ns = {ns}"
        )
    };
}

static SQL: Statements = Statements {
    look: "\
        SELECT leader_id, term,
               TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_expires_at),
               CAST(0 AS SIGNED),
               CAST(NULL AS SIGNED)
        FROM gemstone_election_leader
        WHERE ns = {ns}",

    glance: glance!("0"),

    // Run on a row this transaction has locked already: a locking read sees what is stored,
    // whatever snapshot the transaction has.
    lock: "\
        SELECT leader_id, term,
               TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), lease_expires_at),
               CAST(0 AS SIGNED),
               CAST(NULL AS SIGNED)
        FROM gemstone_election_leader
        WHERE ns = {ns}
        FOR UPDATE",

    ensure_row: "\
        INSERT INTO gemstone_election_leader (ns, leader_id, lease_expires_at, updated_at, term)
        VALUES ({ns}, NULL, NULL, UTC_TIMESTAMP(6), 0)
        ON DUPLICATE KEY UPDATE ns = ns",

    last_term: "\
        SELECT CAST(COALESCE(MAX(term), 0) AS SIGNED)
        FROM gemstone_election_tenure
        WHERE ns = {ns}",

    take: "\
        UPDATE gemstone_election_leader
        SET leader_id = {me},
            lease_expires_at = TIMESTAMPADD(MICROSECOND, {expire}, UTC_TIMESTAMP(6)),
            updated_at = UTC_TIMESTAMP(6),
            term = {term}
        WHERE ns = {ns}",

    renew: "\
        UPDATE gemstone_election_leader
        SET lease_expires_at = TIMESTAMPADD(MICROSECOND, {expire}, UTC_TIMESTAMP(6)),
            updated_at = UTC_TIMESTAMP(6)
        WHERE ns = {ns} AND leader_id = {me} AND term = {term}
          AND lease_expires_at > UTC_TIMESTAMP(6)",

    release: "\
        UPDATE gemstone_election_leader
        SET leader_id = NULL, lease_expires_at = NULL, updated_at = UTC_TIMESTAMP(6)
        WHERE ns = {ns} AND leader_id = {me} AND term = {term}
          AND lease_expires_at > UTC_TIMESTAMP(6)",

    // A wait on another session is ended by MariaDB after 2 seconds, by MySQL, for which the part
    // between the signs is a remark, after what the session is set to.
    beat: "\
        /*M!100302 SET STATEMENT innodb_lock_wait_timeout = 2 FOR */
        INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
        VALUES ({ns}, {me}, UTC_TIMESTAMP(6),
                TIMESTAMPADD(MICROSECOND, {expire}, UTC_TIMESTAMP(6)))
        ON DUPLICATE KEY UPDATE
            last_heartbeat_at = UTC_TIMESTAMP(6),
            expires_at = TIMESTAMPADD(MICROSECOND, {expire}, UTC_TIMESTAMP(6))",

    withdraw: "\
        /*M!100302 SET STATEMENT innodb_lock_wait_timeout = 2 FOR */
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}",

    list: "\
        SELECT candidate_id
        FROM gemstone_election_candidate
        WHERE ns = {ns} AND expires_at > UTC_TIMESTAMP(6)",

    dead_near: "\
        SELECT CONCAT_WS(' ', candidate_id, ns)
        FROM (
            SELECT ns, candidate_id, expires_at
            FROM gemstone_election_candidate
            WHERE ns = {ns} AND candidate_id >= {text} OR ns > {ns}
            ORDER BY ns, candidate_id
            LIMIT {expire}
        ) AS near
        WHERE expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY",

    forget: "\
        DELETE FROM gemstone_election_candidate
        WHERE ns = {ns} AND candidate_id = {me}
          AND expires_at < UTC_TIMESTAMP(6) - INTERVAL 1 DAY",

    begin_tenure: "\
        INSERT INTO gemstone_election_tenure (ns, term, leader_id, began_at)
        VALUES ({ns}, {term}, {me}, UTC_TIMESTAMP(6))",

    end_tenure: "\
        UPDATE gemstone_election_tenure
        SET ended_at = UTC_TIMESTAMP(6), ended_by = {text}
        WHERE ns = {ns} AND term = {term} AND ended_at IS NULL",

    end_tenure_at_lapse: "\
        UPDATE gemstone_election_tenure AS t
        JOIN gemstone_election_leader AS l ON l.ns = t.ns
        SET t.ended_at = COALESCE(l.lease_expires_at, l.updated_at),
            t.ended_by = IF(t.leader_id <=> l.leader_id, 'expired', 'superseded')
        WHERE t.ns = {ns} AND t.term = {term} AND t.ended_at IS NULL",

    forget_tenures: "\
        DELETE FROM gemstone_election_tenure
        WHERE ns = {ns} AND term <= {term} - 1000",

    candidates: "\
        SELECT ns, candidate_id,
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', last_heartbeat_at),
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at),
               CAST(NULL AS CHAR), CAST(0 AS SIGNED)
        FROM gemstone_election_candidate
        WHERE ns = {ns}
        ORDER BY candidate_id",

    leader_row: "\
        SELECT ns, leader_id,
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', updated_at),
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', lease_expires_at),
               CAST(NULL AS CHAR), term
        FROM gemstone_election_leader
        WHERE ns = {ns}",

    history: "\
        SELECT ns, leader_id,
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', began_at),
               TIMESTAMPDIFF(MICROSECOND, '1970-01-01', ended_at),
               ended_by, term
        FROM gemstone_election_tenure
        WHERE ns = {ns}
        ORDER BY term DESC
        LIMIT {expire}",

    beat_all: concat!(
        "\
        INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
        SELECT asked.ns, asked.me, UTC_TIMESTAMP(6),
               TIMESTAMPADD(MICROSECOND, asked.expire, UTC_TIMESTAMP(6))
        FROM ",
        asked!(),
        "
        ON DUPLICATE KEY UPDATE
            last_heartbeat_at = VALUES(last_heartbeat_at), expires_at = VALUES(expires_at)"
    ),

    look_all: concat!(
        "\
        SELECT l.ns, l.leader_id, CAST(0 AS SIGNED),
               TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), l.lease_expires_at),
               CAST(NULL AS CHAR), l.term
        FROM ",
        asked!(),
        "
        JOIN gemstone_election_leader AS l ON l.ns = asked.ns"
    ),

    fence: "\
        SELECT ns
        FROM gemstone_election_leader
        WHERE ns = {ns} AND leader_id = {me} AND term = {term}
          AND lease_expires_at > UTC_TIMESTAMP(6)
        LOCK IN SHARE MODE",

    has_column: "\
        SELECT COUNT(*)
        FROM information_schema.columns
        WHERE table_schema = DATABASE() AND table_name = {text} AND column_name = {me}",
};

/// In place of whether it renewed anything, whether the server is MariaDB and the session in no
/// transaction that would end by the beginning of another.
const GLANCE_FOR_RENEWAL: &str =
    glance!("0 /*M!100302 + (@@in_transaction = 0 AND @@autocommit) */");

/// Runs a statement that waits for no other session: it fails instead. Its `SYSDATE(6)` is UTC, and
/// read when a row has been locked. MySQL has no such thing for one statement, and takes this for a
/// remark.
macro_rules! without_a_wait {
    () => {
        "/*M!100302 SET STATEMENT time_zone = '+00:00', innodb_lock_wait_timeout = 0,
            lock_wait_timeout = 0 FOR */ "
    };
}

/// A condition that is true where [`without_a_wait`] is more than a remark, and false on MySQL.
macro_rules! is_mariadb {
    () => {
        "(FALSE /*M!100302 OR TRUE */)"
    };
}

/// Renews both rows of the leader in one exchange and one commit, or neither. (An UPDATE of two
/// tables would be one statement, but MariaDB makes a table on disk for that, which costs more.)
const RENEW_AT_ONCE: &str = concat!(
    "\
    BEGIN NOT ATOMIC
        DECLARE EXIT HANDLER FOR SQLEXCEPTION BEGIN ROLLBACK; RESIGNAL; END;
        START TRANSACTION;
        ",
    without_a_wait!(),
    "
        UPDATE gemstone_election_leader
        SET lease_expires_at = TIMESTAMPADD(MICROSECOND, {expire}, SYSDATE(6)),
            updated_at = SYSDATE(6)
        WHERE ns = {ns} AND leader_id = {me} AND lease_expires_at > SYSDATE(6);
        IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000'; END IF;
        ",
    without_a_wait!(),
    "
        UPDATE gemstone_election_candidate
        SET last_heartbeat_at = SYSDATE(6),
            expires_at = TIMESTAMPADD(MICROSECOND, {expire}, SYSDATE(6))
        WHERE ns = {ns} AND candidate_id = {me};
        IF ROW_COUNT() <> 1 THEN SIGNAL SQLSTATE '45000'; END IF;
        COMMIT;
    END"
);

/// Renews both rows of many tenures in one commit. One row that is locked fails it for all.
const RENEW_ALL_AT_ONCE: &str = concat!(
    without_a_wait!(),
    "UPDATE ",
    asked!(),
    "
    STRAIGHT_JOIN gemstone_election_leader AS l FORCE INDEX (PRIMARY)
       ON l.ns = asked.ns AND l.leader_id = asked.me AND l.term = asked.term
    STRAIGHT_JOIN gemstone_election_candidate AS c FORCE INDEX (PRIMARY)
       ON c.ns = asked.ns AND c.candidate_id = asked.me
    SET l.lease_expires_at = TIMESTAMPADD(MICROSECOND, asked.expire, SYSDATE(6)),
        l.updated_at = SYSDATE(6),
        c.last_heartbeat_at = SYSDATE(6),
        c.expires_at = TIMESTAMPADD(MICROSECOND, asked.expire, SYSDATE(6))
    WHERE l.lease_expires_at > SYSDATE(6) AND ",
    is_mariadb!()
);

/// Takes the row lock, or finds it taken, without waiting.
const LOCK: &str = "\
    SELECT ns FROM gemstone_election_leader WHERE ns = {ns} FOR UPDATE SKIP LOCKED";

// In a small table the server would rather read, and so lock, every row: the order and the index
// of the join are part of what these statements mean.
const LOCK_ALL: &str = concat!(
    "SELECT CONCAT_WS(' ', l.term, l.leader_id, l.ns) FROM ",
    asked!(),
    " STRAIGHT_JOIN gemstone_election_leader AS l FORCE INDEX (PRIMARY)
        ON l.ns = asked.ns AND l.leader_id = asked.me AND l.term = asked.term
      FOR UPDATE SKIP LOCKED"
);

const RENEWABLE: &str = concat!(
    "SELECT CONCAT_WS(' ', l.term, l.leader_id, l.ns) FROM ",
    asked!(),
    " STRAIGHT_JOIN gemstone_election_leader AS l FORCE INDEX (PRIMARY)
        ON l.ns = asked.ns AND l.leader_id = asked.me AND l.term = asked.term
      WHERE l.lease_expires_at > UTC_TIMESTAMP(6)"
);

const EXTEND: &str = concat!(
    "UPDATE ",
    asked!(),
    " STRAIGHT_JOIN gemstone_election_leader AS l FORCE INDEX (PRIMARY)
        ON l.ns = asked.ns AND l.leader_id = asked.me AND l.term = asked.term
      SET l.lease_expires_at = TIMESTAMPADD(MICROSECOND, asked.expire, UTC_TIMESTAMP(6)),
          l.updated_at = UTC_TIMESTAMP(6)"
);

macro_rules! registered {
    () => {
        concat!(
            "SELECT CONCAT(c.candidate_id, c.ns) FROM ",
            asked!(),
            " STRAIGHT_JOIN gemstone_election_candidate AS c FORCE INDEX (PRIMARY)
                ON c.ns = asked.ns AND c.candidate_id = asked.me"
        )
    };
}

const REGISTERED: &str = registered!();
const LOCK_REGISTERED: &str = concat!(registered!(), " FOR UPDATE SKIP LOCKED");

/// The rows are locked first, without a wait, and judged by a clock that is read afterwards.
fn renewable(conn: &mut MysqlConnection, args: &Args<'_>) -> QueryResult<Vec<String>> {
    let locked: HashSet<String> = conn.texts(LOCK_ALL, args)?.into_iter().collect();
    let mut renewable = conn.texts(RENEWABLE, args)?;
    renewable.retain(|tenure| locked.contains(tenure));
    Ok(renewable)
}

/// A wait on another session is ended by the server after this long, whether a row is locked or, by
/// an `ALTER TABLE` or `LOCK TABLES`, the whole table.
///
/// What the session had is kept in variables of its own, and comes back when the outermost of nested
/// calls ends. `SET` evaluates what is given to a setting before it assigns any variable.
const BOUND_WAITS: &str = "\
    SET @leasehold_wait = IF(@leasehold_depth > 0, @leasehold_wait, @@SESSION.innodb_lock_wait_timeout),
        @leasehold_table_wait = IF(@leasehold_depth > 0, @leasehold_table_wait, @@SESSION.lock_wait_timeout),
        @leasehold_depth = COALESCE(@leasehold_depth, 0) + 1;
    SET SESSION innodb_lock_wait_timeout = 2, SESSION lock_wait_timeout = 2";

const RESTORE_WAITS: &str = "\
    SET @leasehold_depth = @leasehold_depth - 1;
    SET SESSION innodb_lock_wait_timeout = CAST(IF(@leasehold_depth > 0, 2, @leasehold_wait) AS UNSIGNED),
        SESSION lock_wait_timeout = CAST(IF(@leasehold_depth > 0, 2, @leasehold_table_wait) AS UNSIGNED)";

/// A transaction of our own sees what is committed; at the default level, a plain read shows an
/// old snapshot.
const READ_COMMITTED: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED";

impl Store for MysqlConnection {
    const SQL: &'static Statements = &SQL;

    fn lock_row(&mut self, args: &Args<'_>) -> QueryResult<Option<RawSighting>> {
        if self.texts(LOCK, args)?.is_empty() {
            return Ok(None);
        }
        self.sighting(SQL.lock, args)
    }

    /// The server counts a row that it changes twice.
    fn beat(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        Ok(self.execute(SQL.beat, args)? == 1)
    }

    fn look_and_renew(&mut self, args: &Args<'_>) -> Result<Glance, ElectionError> {
        let mut seen = self.seen_by(GLANCE_FOR_RENEWAL, args)?;
        let possible = std::mem::take(&mut seen.renewed);
        seen.renewed = possible && seen.is_led_by(args) && self.renew_at_once(args)?;
        Ok(seen)
    }

    /// For a session of MariaDB that is in no transaction, see [`GLANCE_FOR_RENEWAL`].
    fn renew_at_once(&mut self, args: &Args<'_>) -> Result<bool, ElectionError> {
        let Err(error) = self.execute(RENEW_AT_ONCE, args) else {
            return Ok(true);
        };
        // The full transaction finds out what is true. A statement that is killed may end without its
        // handler, and leave its transaction open.
        tracing::debug!(%error, "a lease was not renewed at once");
        self.batch_execute("ROLLBACK")?;
        Ok(false)
    }

    fn renew_all(&mut self, asks: &[Ask]) -> Result<Vec<String>, ElectionError> {
        let json = as_json(asks)?;
        let args = Args {
            text: &json,
            ..Args::default()
        };
        // Two rows of each tenure; if there are fewer, or a row is locked, each is judged by itself.
        if self.execute(RENEW_ALL_AT_ONCE, &args) == Ok(2 * asks.len()) {
            return Ok(asks.iter().map(Ask::tenure).collect());
        }
        renew_in_steps(self, asks, renewable, EXTEND)
    }

    fn beat_all(&mut self, asks: &[&Ask]) -> Result<(), ElectionError> {
        self.in_transaction(|conn| {
            let json = as_json(asks)?;
            let args = Args {
                text: &json,
                ..Args::default()
            };
            let mut busy: HashSet<String> = conn.texts(REGISTERED, &args)?.into_iter().collect();
            for free in conn.texts(LOCK_REGISTERED, &args)? {
                busy.remove(&free);
            }
            let free: Vec<&&Ask> = asks
                .iter()
                .filter(|ask| !busy.contains(&format!("{}{}", ask.me, ask.ns)))
                .collect();
            let json = as_json(&free)?;
            let args = Args {
                text: &json,
                ..Args::default()
            };
            Ok(conn.execute(SQL.beat_all, &args).map(drop)?)
        })
    }

    /// The first run takes the lock, the second reads the clock with the lock held.
    fn fence(&mut self, args: &Args<'_>) -> QueryResult<bool> {
        self.texts(SQL.fence, args)?;
        self.texts(SQL.fence, args).map(|rows| !rows.is_empty())
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        let nested = self.depth()? > 0;
        self.batch_execute(BOUND_WAITS)?;
        let outcome = if nested {
            in_savepoint(self, work)
        } else {
            self.batch_execute(READ_COMMITTED)
                .map_err(ElectionError::from)
                .and_then(|()| self.transaction(work))
        };
        // What the transaction came to is known already; a connection that cannot even do this
        // says so at its next use.
        let _ = self.batch_execute(RESTORE_WAITS);
        outcome
    }

    /// At the default level, a plain read inside a transaction shows an old snapshot.
    fn reads_are_current(&mut self) -> QueryResult<bool> {
        Ok(self.depth()? == 0)
    }
}

/// Locks by name are of the whole server, so the name of the database is part of it.
const MIGRATION_LOCK: &str =
    "SELECT GET_LOCK(CONCAT('leasehold:', LEFT(DATABASE(), 50)), 30) IS TRUE";
const MIGRATION_UNLOCK: &str = "DO RELEASE_LOCK(CONCAT('leasehold:', LEFT(DATABASE(), 50)))";

impl Migrate for MysqlConnection {
    fn migrations() -> EmbeddedMigrations {
        MYSQL_MIGRATIONS
    }

    fn alone<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        let refused = |detail: &str| ElectionError::Migration {
            detail: detail.to_owned(),
        };
        if self.depth()? > 0 {
            return Err(refused(
                "MySQL would commit the transaction that is open here",
            ));
        }
        if self.number(MIGRATION_LOCK, &Args::default())? == 0 {
            return Err(refused("another process has been migrating for 30 s"));
        }
        let outcome = work(self);
        // The lock ends with the connection at the latest.
        let _ = self.batch_execute(MIGRATION_UNLOCK);
        outcome
    }
}

//! The checks that differ from database to database.

use std::time::Duration;

use super::findings::Finding;
use crate::program::args::DatabaseArgs;
use crate::program::database::Raw;
use crate::program::output::human;

const UTC_WHATEVER: &str = "every instant is stored in UTC, whatever this says";

pub fn postgres(raw: &mut Raw, database: &DatabaseArgs, expire: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = setting(raw, "server_version");
    findings.push(Finding::good("server", format!("PostgreSQL {version}")));
    let replica = raw.text("SELECT CAST(pg_is_in_recovery() AS text) AS value");
    findings.push(primary(replica.as_deref() == Some("false")));
    let zone = setting(raw, "TimeZone");
    findings.push(Finding::good(
        "time zone",
        format!("sessions are in {zone}; {UTC_WHATEVER}"),
    ));
    let isolation = setting(raw, "default_transaction_isolation");
    findings.push(Finding::good("isolation", isolation_text(&isolation)));
    findings.push(pooler(raw, database));
    for (name, at_least) in [
        ("statement_timeout", expire / 4),
        ("idle_session_timeout", expire),
        ("idle_in_transaction_session_timeout", Duration::ZERO),
        ("lock_timeout", Duration::ZERO),
    ] {
        let sql = format!("SELECT setting AS value FROM pg_settings WHERE name = '{name}'");
        if let Some(millis) = raw.text(&sql).and_then(|text| text.parse().ok()) {
            findings.push(timeout(name, Duration::from_millis(millis), at_least));
        }
    }
    let safe = ["fsync", "synchronous_commit", "full_page_writes"]
        .iter()
        .all(|name| setting(raw, name) != "off");
    findings.push(durability(
        safe,
        "fsync, synchronous_commit and full_page_writes",
    ));
    findings
}

pub fn mysql(raw: &mut Raw, expire: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = variable(raw, "version");
    findings.push(Finding::good(
        "server",
        format!("MySQL or MariaDB {version}"),
    ));
    let read_only = variable(raw, "read_only");
    findings.push(primary(matches!(read_only.as_str(), "0" | "OFF")));
    let zone = variable(raw, "time_zone");
    findings.push(Finding::good(
        "time zone",
        format!("sessions are in {zone}; {UTC_WHATEVER}"),
    ));
    // Renamed in MySQL 8 and MariaDB 11.1.
    let isolation = raw
        .text("SELECT CAST(@@transaction_isolation AS CHAR) AS value")
        .or_else(|| raw.text("SELECT CAST(@@tx_isolation AS CHAR) AS value"));
    findings.push(Finding::good(
        "isolation",
        isolation_text(&isolation.unwrap_or_default()),
    ));
    findings.push(engine(raw));
    for (name, at_least) in [
        ("wait_timeout", expire),
        ("innodb_lock_wait_timeout", Duration::ZERO),
    ] {
        if let Ok(seconds) = variable(raw, name).parse() {
            findings.push(timeout(name, Duration::from_secs(seconds), at_least));
        }
    }
    let flush = variable(raw, "innodb_flush_log_at_trx_commit");
    findings.push(durability(
        flush == "1",
        "innodb_flush_log_at_trx_commit = 1",
    ));
    findings
}

pub fn sqlite(raw: &mut Raw) -> Vec<Finding> {
    let version = raw
        .text("SELECT sqlite_version() AS value")
        .unwrap_or_default();
    let mode = raw
        .text("SELECT journal_mode AS value FROM pragma_journal_mode")
        .unwrap_or_default();
    let intact =
        raw.text("SELECT CAST(integrity_check AS TEXT) AS value FROM pragma_integrity_check");
    let file = "a file serves the processes of one machine; on a network file system it serves none safely";
    vec![
        Finding::good("server", format!("SQLite {version}; {file}")),
        Finding::good("time zone", format!("SQLite has none; {UTC_WHATEVER}")),
        Finding::good("isolation", "SQLite writes one transaction at a time"),
        Finding::warn_unless(
            mode == "wal",
            "journal",
            format!("the journal mode is {mode}"),
            "the next election switches it to wal; on a network file system it cannot, so move the file to a local disk",
        ),
        Finding::bad_unless(
            intact.as_deref() == Some("ok"),
            "integrity",
            format!(
                "SQLite's own check says: {}",
                intact.as_deref().unwrap_or("nothing")
            ),
            "restore the file from a backup",
        ),
    ]
}

fn setting(raw: &mut Raw, name: &str) -> String {
    let sql = format!("SELECT current_setting('{name}', true) AS value");
    raw.text(&sql).unwrap_or_default()
}

fn variable(raw: &mut Raw, name: &str) -> String {
    let sql = format!("SELECT CAST(@@{name} AS CHAR) AS value");
    raw.text(&sql).unwrap_or_default()
}

fn primary(holds: bool) -> Finding {
    Finding::bad_unless(
        holds,
        "primary",
        match holds {
            true => "this server takes writes",
            false => "this server takes no writes: it is a replica, or set read-only",
        },
        "give the URL of the primary",
    )
}

fn isolation_text(level: &str) -> String {
    format!(
        "the server's default is {}; elections are right on every level",
        level.to_lowercase()
    )
}

/// While one connection is open and idle, another that gets the same server session proves a pooler that hands sessions out by
/// the transaction.
fn pooler(raw: &mut Raw, database: &DatabaseArgs) -> Finding {
    let backend = "SELECT CAST(pg_backend_pid() AS text) AS value";
    let first = raw.text(backend);
    let second = Raw::open(database)
        .ok()
        .and_then(|mut other| other.text(backend));
    let shared = match (&first, &second) {
        (Some(first), Some(second)) => first == second,
        // An extended query that fails here is what such a pooler does, too.
        _ => true,
    };
    if !shared {
        return Finding::good("pooler", "each connection has a server session of its own");
    }
    let what = "a pooler shares server sessions between connections (PgBouncer in transaction mode, or alike)";
    match database.pooler {
        true => Finding::good("pooler", format!("{what}; --pooler is given")),
        false => Finding::bad(
            "pooler",
            what,
            "give --pooler, in code prepared_statements(false); or connect to the server itself",
        ),
    }
}

/// What InnoDB alone keeps: transactions and row locks.
fn engine(raw: &mut Raw) -> Finding {
    let others = raw.texts(
        "SELECT CAST(table_name AS CHAR) AS value FROM information_schema.tables
         WHERE table_schema = DATABASE() AND table_name LIKE 'gemstone\\_election\\_%' AND engine <> 'InnoDB'",
    );
    match others {
        Ok(others) if !others.is_empty() => Finding::bad(
            "engine",
            format!("not InnoDB, so without transactions: {}", others.join(", ")),
            "ALTER TABLE … ENGINE = InnoDB for each",
        ),
        _ => Finding::good("engine", "the tables are in InnoDB"),
    }
}

/// A limit of zero is none.
fn timeout(name: &'static str, limit: Duration, at_least: Duration) -> Finding {
    if limit.is_zero() {
        return Finding::good("timeout", format!("{name} is off"));
    }
    Finding::warn_unless(
        limit >= at_least,
        "timeout",
        format!("{name} is {}", human(limit)),
        &format!(
            "raise it to {} or more for this user, or leases may lapse without need",
            human(at_least)
        ),
    )
}

fn durability(safe: bool, what: &str) -> Finding {
    match safe {
        true => Finding::good("durability", "a commit survives a crash of the machine"),
        false => Finding::warn(
            "durability",
            "a crash of the server's machine may undo the last commits, and give a term out twice",
            format!("turn on {what}"),
        ),
    }
}

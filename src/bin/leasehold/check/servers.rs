//! The checks that differ from database to database.

use std::collections::HashSet;
use std::time::Duration;

use super::filesystem;
use super::findings::{Finding, PRIMARY};
use crate::program::args::DatabaseArgs;
use crate::program::database::{Kind, Raw};
use crate::program::failure::Failure;
use crate::program::output::human;

const UTC_WHATEVER: &str = "every instant is stored in UTC, whatever this says";

pub fn postgres(
    raw: &mut Raw,
    database: &DatabaseArgs,
    pooler: &Pooler,
    expire: Duration,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.push(server(
        "PostgreSQL",
        &setting(raw, "server_version"),
        (12, 0),
    ));
    let replica = raw.text("SELECT CAST(pg_is_in_recovery() AS text) AS value");
    findings.push(primary(replica.as_deref() == Some("false")));
    let zone = setting(raw, "TimeZone");
    findings.push(Finding::good(
        "time zone",
        format!("sessions are in {zone}; {UTC_WHATEVER}"),
    ));
    let isolation = setting(raw, "default_transaction_isolation");
    findings.push(Finding::good("isolation", isolation_text(&isolation)));
    findings.push(pooler.finding(database.pooler));
    let mut limits = vec![
        ("idle_session_timeout", expire),
        ("transaction_timeout", expire / 4),
    ];
    if database.pooler || pooler.shared {
        // Elsewhere an election sets its own.
        limits.push(("statement_timeout", expire / 4));
    }
    for (name, at_least) in limits {
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
    findings.extend(network(&database.database, expire));
    findings
}

pub fn mysql(raw: &mut Raw, expire: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    let version = variable(raw, "version");
    findings.push(match version.contains("MariaDB") {
        true => server("MariaDB", &version, (10, 6)),
        false => server("MySQL", &version, (8, 0)),
    });
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
    // The other limits are set by an election for its own sessions.
    if let Ok(seconds) = variable(raw, "wait_timeout").parse() {
        let limit = Duration::from_secs(seconds);
        findings.push(timeout("wait_timeout", limit, expire));
    }
    if let Ok(millis) = variable(raw, "max_execution_time").parse() {
        let limit = Duration::from_millis(millis);
        findings.push(timeout("max_execution_time", limit, expire / 4));
    }
    let flush = variable(raw, "innodb_flush_log_at_trx_commit");
    findings.push(durability(
        flush == "1",
        "innodb_flush_log_at_trx_commit = 1",
    ));
    findings
}

pub fn sqlite(raw: &mut Raw, database: &DatabaseArgs) -> Vec<Finding> {
    let version = raw
        .text("SELECT sqlite_version() AS value")
        .unwrap_or_default();
    let mode = raw
        .text("SELECT journal_mode AS value FROM pragma_journal_mode")
        .unwrap_or_default();
    let intact =
        raw.text("SELECT CAST(integrity_check AS TEXT) AS value FROM pragma_integrity_check");
    let file = "a file serves the processes of one machine";
    vec![
        Finding::good("server", format!("SQLite {version}; {file}")),
        Finding::good("time zone", format!("SQLite has none; {UTC_WHATEVER}")),
        Finding::good("isolation", "SQLite writes one transaction at a time"),
        disk(&database.sqlite_path().unwrap_or_default()),
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

/// Judges what the server says of itself; a version that does not begin with numbers is taken as it is.
fn server(product: &str, version: &str, least: (u32, u32)) -> Finding {
    let mut numbers = version
        .split(|other: char| !other.is_ascii_digit())
        .map_while(|number| number.parse::<u32>().ok());
    let found = numbers
        .next()
        .map(|major| (major, numbers.next().unwrap_or(0)));
    Finding::bad_unless(
        found.is_none_or(|found| found >= least),
        "server",
        format!("{product} {version}"),
        &format!(
            "an election needs {product} {}.{} or later",
            least.0, least.1
        ),
    )
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
        PRIMARY,
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

/// Whether a pooler that hands server sessions out by the transaction is in between.
pub struct Pooler {
    pub shared: bool,
}

/// Two connections are open at once. That both get the same server session, or one of them several, proves it. One look may
/// miss it while others use the pooler, too.
pub fn pooler(careful: &DatabaseArgs) -> Result<Pooler, Failure> {
    if careful.kind() != Some(Kind::Postgres) {
        return Ok(Pooler { shared: false });
    }
    let (mut one, mut other) = (Raw::open(careful)?, Raw::open(careful)?);
    let (mut of_one, mut of_other) = (HashSet::new(), HashSet::new());
    for _ in 0..5 {
        of_one.insert(session(&mut one)?);
        of_other.insert(session(&mut other)?);
    }
    let shared = of_one.len() > 1 || of_other.len() > 1 || of_one == of_other;
    Ok(Pooler { shared })
}

fn session(raw: &mut Raw) -> Result<Option<String>, Failure> {
    let mut pids = raw.texts("SELECT CAST(pg_backend_pid() AS text) AS value")?;
    Ok(pids.pop())
}

impl Pooler {
    fn finding(&self, told: bool) -> Finding {
        if !self.shared {
            return Finding::good("pooler", "each connection has a server session of its own");
        }
        let what = "a pooler shares server sessions between connections (PgBouncer in transaction mode, or alike)";
        match told {
            true => Finding::good("pooler", format!("{what}; --pooler is given")),
            false => Finding::bad(
                "pooler",
                what,
                "give --pooler, in code prepared_statements(false); or connect to the server itself",
            ),
        }
    }
}

/// What the URL itself says of a network that swallows everything. Where it is silent, an election sets what it needs.
fn network(url: &str, expire: Duration) -> Vec<Finding> {
    let mut findings = Vec::new();
    if parameter(url, "keepalives") == Some("0") {
        findings.push(Finding::warn(
            "network",
            "the URL turns TCP keepalives off: a call may wait for a dark network without end",
            "take keepalives=0 out of the URL",
        ));
    }
    let limit = parameter(url, "tcp_user_timeout").and_then(|millis| millis.parse().ok());
    if let Some(limit) = limit.map(Duration::from_millis)
        && (limit.is_zero() || limit > expire)
    {
        let shown = match limit.is_zero() {
            true => "the system's default, minutes".to_owned(),
            false => human(limit),
        };
        findings.push(Finding::warn(
            "network",
            format!(
                "by tcp_user_timeout in the URL a call may wait for a dark network for {shown}"
            ),
            "take it out of the URL: an election then uses a quarter of the lease",
        ));
    }
    findings
}

fn parameter<'a>(url: &'a str, name: &str) -> Option<&'a str> {
    let (_, parameters) = url.split_once('?')?;
    let mut pairs = parameters
        .split('&')
        .filter_map(|pair| pair.split_once('='));
    pairs
        .find(|(given, _)| *given == name)
        .map(|(_, value)| value)
}

/// The file is judged by the directory that it is in: SQLite keeps two more beside it.
fn disk(path: &str) -> Finding {
    let directory = std::path::Path::new(path).parent();
    let directory = directory.filter(|parent| !parent.as_os_str().is_empty());
    let opened = std::fs::File::open(directory.unwrap_or(".".as_ref()));
    match opened.map(|directory| filesystem::doubtful(&directory)) {
        Ok(Ok(Some(name))) => Finding::bad(
            "disk",
            format!(
                "the file is on {name}, where its locks may not exclude other machines, nor even other processes"
            ),
            "move it to a local disk; for several machines use PostgreSQL or MySQL",
        ),
        Ok(Ok(None)) => Finding::good("disk", "the file is on a local disk"),
        // Nothing is known, so nothing is claimed.
        _ => Finding::good("disk", "the directory of the file cannot be looked at"),
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

#[cfg(test)]
mod tests {
    use super::super::findings::Verdict;
    use super::*;

    #[test]
    fn a_server_that_is_too_old_is_refused() {
        let verdict = |version, least| server("it", version, least).verdict;
        for version in ["12.0", "15.18 (Debian 15.18-0+deb12u1)", "18beta1", "devel"] {
            assert!(verdict(version, (12, 0)) == Verdict::Good, "{version}");
        }
        for version in ["11.22 (Ubuntu)", "9.6.24"] {
            assert!(verdict(version, (12, 0)) == Verdict::Bad, "{version}");
        }
        for version in [
            "10.6.0-MariaDB",
            "10.11.14-MariaDB-0+deb12u2",
            "11.4.2-MariaDB",
        ] {
            assert!(verdict(version, (10, 6)) == Verdict::Good, "{version}");
        }
        assert!(verdict("10.5.29-MariaDB", (10, 6)) == Verdict::Bad);
        assert!(verdict("5.7.44", (8, 0)) == Verdict::Bad);
    }
}

//! Whether this user may do with the tables what an election does.

use super::findings::Finding;
use crate::program::database::{Kind, Raw};

/// What an election does with each table. The leader row is never deleted: it keeps the term.
const NEEDED: [(&str, &[&str]); 3] = [
    ("gemstone_election_leader", &["SELECT", "INSERT", "UPDATE"]),
    (
        "gemstone_election_candidate",
        &["SELECT", "INSERT", "UPDATE", "DELETE"],
    ),
    (
        "gemstone_election_tenure",
        &["SELECT", "INSERT", "UPDATE", "DELETE"],
    ),
];

/// Tries each statement on no row. The tables must exist, and the server must take writes.
pub fn privileges(raw: &mut Raw) -> Finding {
    let mut refused = Vec::new();
    for (table, verbs) in NEEDED {
        for verb in verbs {
            if let Err(said) = raw.execute(&on_no_row(verb, table)) {
                refused.push((table, *verb, said));
            }
        }
    }
    let Some((_, _, said)) = refused.first() else {
        return Finding::good(
            "privileges",
            "this user may read and write the election tables",
        );
    };
    // A writer that does not end keeps this connection out of an SQLite file, but not for want of a privilege.
    if raw.kind() == Kind::Sqlite && said.contains("database is locked") {
        return Finding::warn(
            "privileges",
            "not tried: another process keeps the file locked",
            "look for a transaction that was left open, and check again",
        );
    }
    let list = refused
        .iter()
        .map(|(table, verb, _)| format!("{verb} on {table}"));
    let what = format!(
        "the database refuses {}: {said}",
        list.collect::<Vec<_>>().join(", ")
    );
    let advice = match raw.kind() {
        Kind::Sqlite => "let this user write the file and the directory that it is in",
        _ => "grant them to this user; an election reads and writes all three tables",
    };
    Finding::bad("privileges", what, advice)
}

fn on_no_row(verb: &str, table: &str) -> String {
    match verb {
        "SELECT" => format!("SELECT ns FROM {table} WHERE 1 = 0"),
        "INSERT" => format!("INSERT INTO {table} SELECT * FROM {table} WHERE 1 = 0"),
        "UPDATE" => format!("UPDATE {table} SET ns = ns WHERE 1 = 0"),
        _ => format!("DELETE FROM {table} WHERE 1 = 0"),
    }
}

//! What a database error means for the caller.
//!
//! diesel gives an error code only for a few kinds, so the rest is told by the message. A message
//! this table does not know (a server may speak another language) is `Unknown`: worth another
//! try, never a reason to say "lost" or "leader".

use diesel::result::{DatabaseErrorKind as Kind, Error};

/// What to do about a database error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// Another session was in the way: the same transaction may succeed at once.
    Contention,
    /// The connection is gone, or leads to a server that cannot write: take a fresh one.
    Disconnected,
    /// A table or column of the election is missing.
    Schema,
    /// A transaction pooler lost a prepared statement.
    Pooler,
    /// A mistake of the caller or of this crate: trying again gives the same.
    Final,
    /// Not known: try again, within bounds.
    Unknown,
}

#[rustfmt::skip]
const MESSAGES: &[(&str, Class)] = &[
    // PostgreSQL
    ("deadlock detected", Class::Contention),
    ("canceling statement due to lock timeout", Class::Contention),
    ("canceling statement due to statement timeout", Class::Contention),
    ("could not obtain lock", Class::Contention),
    ("has no equivalent in encoding", Class::Final),
    ("value too long for type", Class::Final),
    ("terminating connection", Class::Disconnected),
    ("server closed the connection", Class::Disconnected),
    ("connection has been closed", Class::Disconnected),
    ("no connection to the server", Class::Disconnected),
    ("connection not open", Class::Disconnected),
    ("could not receive data", Class::Disconnected),
    ("could not send data", Class::Disconnected),
    ("the database system is", Class::Disconnected),
    ("connection pointer is NULL", Class::Disconnected),
    // MySQL and MariaDB
    ("Deadlock found", Class::Contention),
    ("Lock wait timeout exceeded", Class::Contention),
    ("Record has changed since last read", Class::Contention),
    ("Query execution was interrupted", Class::Contention),
    ("server has gone away", Class::Disconnected),
    ("Lost connection", Class::Disconnected),
    ("Connection was killed", Class::Disconnected),
    ("Server shutdown in progress", Class::Disconnected),
    ("read-only option", Class::Disconnected),
    ("READ ONLY transaction", Class::Final),
    // SQLite
    ("attempt to write a readonly database", Class::Final),
    ("database is locked", Class::Contention),
    ("database table is locked", Class::Contention),
    ("database schema is locked", Class::Contention),
];

pub(crate) fn classify(error: &Error) -> Class {
    match error {
        Error::DatabaseError(kind, info) => classify_database(kind, info.message()),
        Error::RollbackErrorOnCommit { commit_error, .. } => classify(commit_error),
        Error::BrokenTransactionManager => Class::Disconnected,
        Error::RollbackTransaction => Class::Unknown,
        _ => Class::Final,
    }
}

fn classify_database(kind: &Kind, message: &str) -> Class {
    match kind {
        Kind::SerializationFailure | Kind::UniqueViolation => Class::Contention,
        // A write that reaches a standby: after a fail-over a fresh connection finds the primary.
        Kind::ClosedConnection | Kind::ReadOnlyTransaction => Class::Disconnected,
        Kind::ForeignKeyViolation | Kind::NotNullViolation | Kind::CheckViolation => Class::Final,
        _ => classify_message(message),
    }
}

fn classify_message(message: &str) -> Class {
    if lacks_table_or_column(message) {
        return Class::Schema;
    }
    let about_statement = message.contains("prepared statement");
    if about_statement
        && ["does not exist", "already exists"]
            .iter()
            .any(|part| message.contains(part))
        || message.contains("bind message supplies")
        || message.contains("incorrect binary data format")
    {
        return Class::Pooler;
    }
    MESSAGES
        .iter()
        .find(|(part, _)| message.contains(part))
        .map_or(Class::Unknown, |&(_, class)| class)
}

fn lacks_table_or_column(message: &str) -> bool {
    let ours = message.contains("gemstone_election_")
        || ["term", "l.term"].iter().any(|column| {
            message.contains(&format!("column {column} "))
                || message.contains(&format!("column \"{column}\""))
                || message.contains(&format!("column '{column}'"))
                || message.ends_with(&format!("column: {column}"))
        });
    ours && [
        "does not exist",
        "doesn't exist",
        "no such",
        "Unknown column",
    ]
    .iter()
    .any(|part| message.contains(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_tables_and_columns_are_told_from_everything_else() {
        for message in [
            "relation \"gemstone_election_leader\" does not exist",
            "column l.term does not exist",
            "column \"term\" does not exist",
            "Table 'app.gemstone_election_leader' doesn't exist",
            "Unknown column 'term' in 'field list'",
            "no such table: gemstone_election_leader",
            "no such column: term",
        ] {
            assert_eq!(classify_message(message), Class::Schema, "{message}");
        }
        for message in ["relation \"orders\" does not exist", "no such table: users"] {
            assert_eq!(classify_message(message), Class::Unknown, "{message}");
        }
    }

    #[test]
    fn an_unknown_message_is_neither_final_nor_lost() {
        assert_eq!(classify_message("Verklemmung entdeckt"), Class::Unknown);
    }
}

use std::time::Duration;

use diesel::result::Error as DieselError;
use uuid::Uuid;

use super::classify::{Class, classify};
use super::{Term, url};

/// What went wrong in a call of [`election`](crate::election).
///
/// Every message says what happened, to which namespace or database, and what to do. No message,
/// no `Debug` output and no source carries the password of a database URL.
///
/// When [`is_retryable`](ElectionError::is_retryable) is true, the same call may succeed later
/// and nothing about leadership has been learned: neither "you lead" nor "you do not".
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ElectionError {
    /// The namespace is not one that every database stores exactly. Nothing was written.
    #[error(
        "namespace {ns:?} is refused: {reason}; use 1 to 255 characters, no control characters, \
         no whitespace at either end"
    )]
    InvalidNamespace {
        /// The namespace as given, cut after 255 characters.
        ns: String,
        /// The rule it breaks.
        reason: &'static str,
    },

    /// A setting is outside its range. Nothing was changed.
    #[error("{setting} = {given} is refused: it must be {accepted}")]
    InvalidSetting {
        /// The name of the setting.
        setting: &'static str,
        /// The value as given.
        given: String,
        /// The accepted range.
        accepted: &'static str,
    },

    /// The database URL is not one this build can use. Nothing was opened or created.
    #[error(
        "the database URL is refused: {reason}; use one of postgres://USER:PASSWORD@HOST/DATABASE, \
         mysql://USER:PASSWORD@HOST/DATABASE, sqlite:PATH"
    )]
    InvalidUrl {
        /// What is wrong with it.
        reason: String,
    },

    /// The database could not be reached or refused the connection.
    #[error(
        "cannot connect to {database}: {}; {}",
        one_line(source),
        way_to(database)
    )]
    Connect {
        /// The database URL without its password.
        database: String,
        /// What the driver said, with the password removed.
        #[source]
        source: diesel::ConnectionError,
    },

    /// No connection became free, or could be opened, in time.
    #[error(
        "no connection to {database} within {waited:?}: {detail}; try again, check that the \
         database runs, or raise pool_size"
    )]
    NoConnection {
        /// The database URL without its password.
        database: String,
        /// How long the call waited.
        waited: Duration,
        /// The last reason known.
        detail: String,
    },

    /// The tables are missing or older than this version of the crate.
    #[error(
        "the election tables are not usable: {found}; run `migrate`, connect with `migrate(true)`, \
         or apply the published migrations"
    )]
    Schema {
        /// What was found.
        found: String,
    },

    /// A stored row is not one that an election writes. Nothing was changed.
    #[error(
        "corrupt row in {table} for namespace {ns:?}: {detail}; correct or delete the row by hand"
    )]
    Corrupt {
        /// The table of the row.
        table: &'static str,
        /// The namespace of the row.
        ns: String,
        /// What is wrong with it.
        detail: String,
    },

    /// The guard does not lead, or its tenure has ended; what its work wanted to write was refused.
    #[error("candidate {candidate_id} does not lead namespace {ns:?}{}", refused(*term))]
    NotLeader {
        /// The namespace.
        ns: String,
        /// The candidate whose tenure ended.
        candidate_id: Uuid,
        /// The term of the ended tenure; 0 where there has been none.
        term: Term,
    },

    /// A guard gave its lease up and the database did not confirm it in time.
    #[error(
        "candidate {candidate_id} resigned from namespace {ns:?}, which the database did not \
         confirm within {waited:?}; a lease that it held runs out by itself"
    )]
    NotReleased {
        /// The namespace.
        ns: String,
        /// The candidate that resigned.
        candidate_id: Uuid,
        /// How long the call waited.
        waited: Duration,
    },

    /// No thread could be started to keep the lease. Nothing was written.
    #[error("the heartbeat thread cannot be started: {source}; no lease was taken")]
    Thread {
        /// What the system reported.
        source: std::io::Error,
    },

    /// Another session kept the leader row locked for the whole time budget of the call.
    #[error(
        "the leader row of namespace {ns:?} stayed locked for {waited:?}; try again, and look for \
         a transaction that was left open"
    )]
    LockTimeout {
        /// The namespace.
        ns: String,
        /// How long the call tried.
        waited: Duration,
    },

    /// The database refused or failed a statement.
    #[error("{}: {}; {}", at(call, ns), one_line(source), advice(call, source))]
    Database {
        /// The function that was called; empty where it is not known, as for a statement of your own.
        call: &'static str,
        /// The namespace; empty where it is not known.
        ns: String,
        /// What diesel reported.
        #[source]
        source: DieselError,
    },

    /// A migration could not be read or applied.
    #[error("migrating the election tables failed: {detail}; correct the cause and run it again")]
    Migration {
        /// What the migration reported.
        detail: String,
    },
}

impl ElectionError {
    /// Whether the same call may succeed later without anything else being changed.
    ///
    /// True for lock contention, serialization failures, deadlocks, lost connections and every
    /// database error that is not known to be final. Inside a transaction of your own, roll it
    /// back first.
    ///
    /// Of an error of your own statement, which became one of these by `?`, little is known: a
    /// duplicate key and a rollback that you asked for are final, wrong SQL is not told from what
    /// may pass. Bound your retries.
    pub fn is_retryable(&self) -> bool {
        match self {
            ElectionError::LockTimeout { .. } | ElectionError::NoConnection { .. } => true,
            ElectionError::Connect { source, .. } => !url::is_final(source),
            ElectionError::Database { call, source, .. } => told(call, source) != Class::Final,
            _ => false,
        }
    }

    pub(crate) fn class(&self) -> Option<Class> {
        match self {
            ElectionError::Database { source, .. } => Some(classify(source)),
            _ => None,
        }
    }

    /// The same error, with the call and the namespace it happened to.
    pub(crate) fn during(self, in_call: &'static str, in_ns: &str) -> ElectionError {
        match self {
            ElectionError::Database {
                call: "", source, ..
            } => ElectionError::Database {
                call: in_call,
                ns: in_ns.to_owned(),
                source,
            },
            other => other,
        }
    }
}

impl From<DieselError> for ElectionError {
    fn from(source: DieselError) -> Self {
        match classify(&source) {
            Class::Schema => ElectionError::Schema {
                found: source.to_string(),
            },
            _ => ElectionError::Database {
                call: "",
                ns: String::new(),
                source,
            },
        }
    }
}

/// What an error means for who gets it. Our own statements meet a duplicate key only when another
/// session was quicker; of another's it is the end.
fn told(call: &str, source: &DieselError) -> Class {
    use diesel::result::DatabaseErrorKind::UniqueViolation;
    match source {
        DieselError::DatabaseError(UniqueViolation, _) | DieselError::RollbackTransaction
            if call.is_empty() =>
        {
            Class::Final
        }
        _ => classify(source),
    }
}

/// Some drivers tell in several lines.
fn one_line(told: &dyn std::error::Error) -> String {
    let told = told.to_string();
    told.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn way_to(database: &str) -> &'static str {
    if database.starts_with("sqlite:") {
        "check the path: it must name a file, in a directory that is there, and this user must be able \
         to write both"
    } else {
        "check that it runs, the address, user and password"
    }
}

fn refused(term: Term) -> String {
    match term.get() {
        0 => " in this database; its work was refused: wait until it leads".to_owned(),
        term => format!(
            " under term {term} in this database; its work was refused: stop it and campaign again"
        ),
    }
}

fn at(call: &str, ns: &str) -> String {
    if call.is_empty() {
        "the database reported".to_owned()
    } else {
        format!("{call} in namespace {ns:?} failed")
    }
}

fn advice(call: &str, source: &DieselError) -> &'static str {
    match told(call, source) {
        Class::Contention => "try again; inside a transaction of your own, roll it back first",
        Class::Disconnected => "try again on a fresh connection",
        Class::Pooler => {
            "a transaction pooler between here and the server mixes sessions: connect with \
             prepared_statements(false)"
        }
        Class::Schema => "migrate the tables",
        Class::Final => "correct the cause; trying again will not help",
        Class::Unknown => "it may be passing: try again, and correct the cause if it stays",
    }
}

//! Connections: the library's, and a plain one for what only this program asks.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use leasehold::election::{Election, ElectionBuilder, ElectionError};

use crate::program::args::DatabaseArgs;
use crate::program::failure::{ERROR, Failure, USAGE};

/// Whether the tables are created where they are missing.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tables {
    Create,
    MustExist,
}

impl DatabaseArgs {
    pub fn open(&self, tables: Tables, expire: Option<Duration>) -> Result<Election, Failure> {
        if tables == Tables::MustExist {
            self.must_be_there()?;
        }
        let mut builder = self.builder(tables);
        if let Some(expire) = expire {
            builder = builder.expire(expire);
        }
        Ok(builder.build()?)
    }

    /// Whether the tables are there and up to date.
    pub fn has_tables(&self) -> Result<bool, Failure> {
        self.must_be_there()?;
        match self.builder(Tables::MustExist).build() {
            Ok(_) => Ok(true),
            Err(ElectionError::Schema { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn builder(&self, tables: Tables) -> ElectionBuilder {
        Election::builder(&self.database)
            .migrate(tables == Tables::Create)
            .prepared_statements(!self.pooler)
    }

    /// A question shall not create the file it is about.
    fn must_be_there(&self) -> Result<(), Failure> {
        match self.sqlite_path() {
            Some(path) if !path.is_empty() && !Path::new(&path).exists() => Err(Failure::new(
                ERROR,
                format!("there is no database file {path:?}"),
                "correct the path, or create the file with `leasehold migrate`",
            )),
            _ => Ok(()),
        }
    }

    /// The file that the library opens for this URL; none for what it refuses.
    pub fn sqlite_path(&self) -> Option<String> {
        let path = self.database.strip_prefix("sqlite:")?;
        let path = path.strip_prefix("//").unwrap_or(path);
        if path == ":memory:" || path.contains("mode=memory") || path.contains('?') {
            return None;
        }
        let special = path.starts_with("file:") || path.starts_with(':');
        Some(if special {
            format!("./{path}")
        } else {
            path.to_owned()
        })
    }

    pub fn kind(&self) -> Option<Kind> {
        match self.database.split_once(':')?.0 {
            "postgres" | "postgresql" => Some(Kind::Postgres),
            "mysql" => Some(Kind::Mysql),
            "sqlite" => Some(Kind::Sqlite),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    Mysql,
    Sqlite,
}

/// Runs `work`, but waits no longer than `timeout`: a client library may wait for a dark network without end.
pub fn bounded<T: Send + 'static>(
    timeout: Duration,
    work: impl FnOnce() -> Result<T, Failure> + Send + 'static,
) -> Result<T, Failure> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || sender.send(work()));
    receiver.recv_timeout(timeout).unwrap_or_else(|error| {
        let what = match error {
            mpsc::RecvTimeoutError::Timeout => {
                format!(
                    "the database did not answer within {}",
                    crate::program::output::human(timeout)
                )
            }
            mpsc::RecvTimeoutError::Disconnected => "the question was broken off".to_owned(),
        };
        Err(Failure::new(
            ERROR,
            what,
            "check that it runs and can be reached, or give a longer --timeout",
        ))
    })
}

/// A plain connection, beside the library's.
pub enum Raw {
    #[cfg(feature = "postgres")]
    Postgres {
        conn: diesel::pg::PgConnection,
        /// A pooler may give every statement another session, but not inside a transaction.
        pooler: bool,
    },
    #[cfg(feature = "mysql")]
    Mysql(diesel::mysql::MysqlConnection),
    #[cfg(feature = "sqlite")]
    Sqlite(diesel::sqlite::SqliteConnection),
}

/// How long a question waits for a writer of an SQLite file.
#[cfg(feature = "sqlite")]
const SQLITE_WAITS: &str = "PRAGMA busy_timeout = 5000";

#[derive(diesel::QueryableByName)]
struct Word {
    #[diesel(sql_type = diesel::sql_types::Text)]
    value: String,
}

impl Raw {
    /// Connects where an `Election` has connected before: that has judged the URL and would have told what is wrong.
    pub fn open(database: &DatabaseArgs) -> Result<Raw, Failure> {
        let opened: Result<Raw, diesel::ConnectionError> = match database.kind() {
            #[cfg(feature = "postgres")]
            Some(Kind::Postgres) => establish(&database.database).map(|conn| Raw::Postgres {
                conn,
                pooler: database.pooler,
            }),
            #[cfg(feature = "mysql")]
            Some(Kind::Mysql) => establish(&database.database).map(Raw::Mysql),
            #[cfg(feature = "sqlite")]
            Some(Kind::Sqlite) => sqlite(&database.sqlite_path().unwrap_or_default()),
            _ => {
                return Err(Failure::new(
                    USAGE,
                    "this build is without that database",
                    "install it with one of the features postgres, mysql, sqlite",
                ));
            }
        };
        // The driver's words may quote the URL, and with it the password.
        opened.map_err(|_| {
            Failure::new(
                ERROR,
                "the database took one connection and refused the second",
                "raise its limit of connections, or try again",
            )
        })
    }

    /// Runs a statement that answers nothing; the error is what the database said.
    pub fn execute(&mut self, sql: &str) -> Result<(), String> {
        use diesel::connection::SimpleConnection;
        let done = match self {
            #[cfg(feature = "postgres")]
            Raw::Postgres { conn, .. } => conn.batch_execute(sql),
            #[cfg(feature = "mysql")]
            Raw::Mysql(conn) => conn.batch_execute(sql),
            #[cfg(feature = "sqlite")]
            Raw::Sqlite(conn) => conn.batch_execute(sql),
        };
        done.map_err(|error| error.to_string())
    }

    /// The column `value` of a query, which must be text.
    pub fn texts(&mut self, sql: &str) -> Result<Vec<String>, Failure> {
        use diesel::RunQueryDsl;
        let query = diesel::sql_query(sql);
        let words: Result<Vec<Word>, _> = match self {
            #[cfg(feature = "postgres")]
            Raw::Postgres { conn, pooler: true } => {
                diesel::Connection::transaction(conn, |conn| query.load(conn))
            }
            #[cfg(feature = "postgres")]
            Raw::Postgres { conn, .. } => query.load(conn),
            #[cfg(feature = "mysql")]
            Raw::Mysql(conn) => query.load(conn),
            #[cfg(feature = "sqlite")]
            Raw::Sqlite(conn) => query.load(conn),
        };
        let words = words.map_err(|error| {
            let what = format!("the database refused a question: {error}");
            Failure::new(ERROR, what, "correct the cause and try again")
        })?;
        Ok(words.into_iter().map(|word| word.value).collect())
    }

    /// The first answer of a query, if it has one and the database understands it.
    pub fn text(&mut self, sql: &str) -> Option<String> {
        self.texts(sql).ok()?.into_iter().next()
    }

    pub fn namespaces(&mut self) -> Result<Vec<String>, Failure> {
        self.texts(
            "SELECT ns AS value FROM gemstone_election_leader
             UNION SELECT ns AS value FROM gemstone_election_candidate ORDER BY 1",
        )
    }

    /// The database's clock.
    pub fn now(&mut self) -> Result<DateTime<Utc>, Failure> {
        let sql = match self.kind() {
            Kind::Postgres => {
                "SELECT CAST(CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) AS text) AS value"
            }
            Kind::Mysql => {
                "SELECT CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) AS CHAR) AS value"
            }
            Kind::Sqlite => {
                "SELECT CAST(strftime('%s', 'now') * 1000000
                        + CAST(substr(strftime('%f', 'now'), 4) AS INTEGER) * 1000 AS TEXT) AS value"
            }
        };
        let micros = self.texts(sql)?.first().and_then(|text| text.parse().ok());
        micros
            .and_then(DateTime::from_timestamp_micros)
            .ok_or_else(|| {
                Failure::new(
                    ERROR,
                    "the database's clock cannot be read",
                    "check the server's time",
                )
            })
    }

    pub fn kind(&self) -> Kind {
        match *self {
            #[cfg(feature = "postgres")]
            Raw::Postgres { .. } => Kind::Postgres,
            #[cfg(feature = "mysql")]
            Raw::Mysql(_) => Kind::Mysql,
            #[cfg(feature = "sqlite")]
            Raw::Sqlite(_) => Kind::Sqlite,
        }
    }
}

#[cfg(feature = "sqlite")]
fn sqlite(path: &str) -> Result<Raw, diesel::ConnectionError> {
    use diesel::connection::SimpleConnection;
    let mut conn: diesel::sqlite::SqliteConnection = establish(path)?;
    conn.batch_execute(SQLITE_WAITS)
        .map_err(diesel::ConnectionError::CouldntSetupConfiguration)?;
    Ok(Raw::Sqlite(conn))
}

fn establish<C: diesel::Connection>(url: &str) -> Result<C, diesel::ConnectionError> {
    C::establish(url)
}

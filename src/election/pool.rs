//! The connections of an [`Election`](super::Election): how they are opened, lent and given up.

use std::time::Duration;

use super::calls::Call;
use super::classify::Class;
use super::store::Store;
use super::url::DatabaseUrl;
use super::{ElectionError, retry};

/// What every connection of an `Election` is opened with.
#[derive(Debug, Clone)]
pub(crate) struct Opening {
    pub url: DatabaseUrl,
    /// After this long the server ends a statement, where it can.
    pub statement_timeout: Duration,
    pub prepared_statements: bool,
}

/// A connection that can be opened from a URL.
pub(crate) trait Open: Store + Send + 'static {
    /// Whether a release is told to those who listen.
    const NOTIFIES: bool = false;

    fn open(opening: &Opening) -> Result<Self, ElectionError>;

    /// A connection for the heartbeat, which hears of releases where it can.
    fn open_for_beats(opening: &Opening) -> Result<Self, ElectionError> {
        Self::open(opening)
    }

    /// The namespaces that were released since the last call; does not wait.
    fn heard(&mut self) -> Result<Vec<String>, ElectionError> {
        Ok(Vec::new())
    }
}

/// Opens connections for r2d2.
#[derive(Debug)]
pub(crate) struct Manager<C> {
    opening: Opening,
    connection: std::marker::PhantomData<fn() -> C>,
}

/// A connection of the pool, and whether it is known to be dead.
///
/// The pool does not ask a connection whether it lives before it lends it, which would double the
/// exchanges of every call; the error of a dead one says so.
pub(crate) struct Pooled<C> {
    conn: C,
    dead: bool,
}

impl<C: Open> r2d2::ManageConnection for Manager<C> {
    type Connection = Pooled<C>;
    type Error = ElectionError;

    fn connect(&self) -> Result<Pooled<C>, ElectionError> {
        C::open(&self.opening).map(|conn| Pooled { conn, dead: false })
    }

    fn is_valid(&self, _: &mut Pooled<C>) -> Result<(), ElectionError> {
        Ok(())
    }

    fn has_broken(&self, pooled: &mut Pooled<C>) -> bool {
        // A transaction that is still open belongs to work that panicked.
        pooled.dead
            || std::thread::panicking()
            || pooled.conn.depth().map_or(true, |depth| depth > 0)
    }
}

pub(crate) struct Pool<C: Open> {
    pool: r2d2::Pool<Manager<C>>,
    opening: Opening,
}

impl<C: Open> Pool<C> {
    /// Opens no connection yet.
    pub(crate) fn new(opening: Opening, size: u32) -> Pool<C> {
        let manager = Manager {
            opening: opening.clone(),
            connection: std::marker::PhantomData,
        };
        let pool = r2d2::Pool::builder()
            .max_size(size)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .error_handler(Box::new(r2d2::NopErrorHandler))
            .build_unchecked(manager);
        Pool { pool, opening }
    }

    /// Runs `work` on a connection; again on a fresh one as long as it meets dead ones.
    ///
    /// Every call of an election may run twice: what the first run wrote, the second finds.
    pub(crate) fn lend<T>(
        &self,
        call: &Call<'_>,
        work: impl Fn(&mut C) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        let mut attempts = call.budget::<C>().start(C::LONGEST_PAUSE);
        loop {
            let mut lent = self.take(&attempts)?;
            let outcome = work(&mut lent.conn);
            let Err(error) = outcome else { return outcome };
            let class = error.class();
            lent.dead = matches!(
                class,
                Some(Class::Disconnected | Class::Unknown | Class::Pooler)
            );
            drop(lent);
            if class != Some(Class::Disconnected) {
                return Err(error);
            }
            attempts.pause_or_time_out(error)?;
        }
    }

    fn take(
        &self,
        attempts: &retry::Attempts,
    ) -> Result<r2d2::PooledConnection<Manager<C>>, ElectionError> {
        let left = attempts.left().max(Duration::from_millis(1));
        self.pool
            .get_timeout(left)
            .map_err(|error| ElectionError::NoConnection {
                database: self.opening.url.shown(),
                waited: attempts.spent(),
                detail: error.to_string(),
            })
    }
}

#[cfg(feature = "postgres")]
impl Open for diesel::pg::PgConnection {
    const NOTIFIES: bool = true;

    fn open_for_beats(opening: &Opening) -> Result<Self, ElectionError> {
        use diesel::connection::SimpleConnection;

        let mut conn = Self::open(opening)?;
        if opening.prepared_statements {
            conn.batch_execute("LISTEN gemstone_election")?;
        }
        Ok(conn)
    }

    fn heard(&mut self) -> Result<Vec<String>, ElectionError> {
        let heard = self.notifications_iter().map(|heard| Ok(heard?.payload));
        heard.collect()
    }

    fn open(opening: &Opening) -> Result<Self, ElectionError> {
        use diesel::connection::{CacheSize, SimpleConnection};
        use diesel::prelude::*;

        let DatabaseUrl::Postgres(url) = &opening.url else {
            return Err(wrong_kind());
        };
        let mut conn = Self::establish(&with_connect_limits(url, opening.statement_timeout))
            .map_err(|error| opening.url.connect_error(error))?;
        if opening.prepared_statements {
            let millis = opening.statement_timeout.as_millis();
            conn.batch_execute(&format!(
                "SET statement_timeout = {millis};
                 SET lock_timeout = {millis};
                 SET idle_in_transaction_session_timeout = {millis};
                 SET default_transaction_isolation = 'read committed'"
            ))?;
        } else {
            // What is set on a session behind a pooler would stay there for somebody else. A statement
            // that is not prepared goes in one exchange, so each may get another session.
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        }
        Ok(conn)
    }
}

/// Adds what libpq should not wait for, where the URL does not say it already.
#[cfg(feature = "postgres")]
fn with_connect_limits(url: &str, timeout: Duration) -> String {
    let seconds = timeout.as_secs().clamp(2, 10);
    let millis = timeout.as_millis().max(1000);
    let mut url = url.to_owned();
    for (name, value) in [
        ("connect_timeout", u128::from(seconds)),
        ("tcp_user_timeout", millis),
    ] {
        if !url.contains(name) {
            let separator = match (url.contains('?'), url.ends_with(['?', '&'])) {
                (false, _) => "?",
                (true, false) => "&",
                (true, true) => "",
            };
            url.push_str(&format!("{separator}{name}={value}"));
        }
    }
    url
}

#[cfg(feature = "mysql")]
impl Open for diesel::mysql::MysqlConnection {
    fn open_for_beats(opening: &Opening) -> Result<Self, ElectionError> {
        // The client library waits without bound for a server that does not answer.
        if let DatabaseUrl::Mysql(url) = &opening.url
            && let Some(address) = super::url::tcp_address(url)
            && let Err(error) = greets(&address, opening.statement_timeout)
        {
            let error = diesel::ConnectionError::BadConnection(error.to_string());
            return Err(opening.url.connect_error(error));
        }
        Self::open(opening)
    }

    fn open(opening: &Opening) -> Result<Self, ElectionError> {
        use diesel::connection::{CacheSize, SimpleConnection};
        use diesel::prelude::*;

        let DatabaseUrl::Mysql(url) = &opening.url else {
            return Err(wrong_kind());
        };
        let mut conn = Self::establish(url).map_err(|error| opening.url.connect_error(error))?;
        let seconds = opening.statement_timeout.as_secs_f64();
        let whole = opening.statement_timeout.as_secs().max(1);
        // The part between the signs is for MariaDB; MySQL has no such limits. The last ends a
        // transaction whose client was stopped or cut off in its middle, and frees the row.
        conn.batch_execute(&format!(
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED;
             SET autocommit = 1, SESSION innodb_lock_wait_timeout = {whole},
                SESSION lock_wait_timeout = {whole}
             /*M!100300 , SESSION max_statement_time = {seconds},
                SESSION idle_transaction_timeout = {whole} */"
        ))?;
        if !opening.prepared_statements {
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        }
        check_client_library(&mut conn, opening)?;
        Ok(conn)
    }
}

/// Some versions of MariaDB's client library (3.3.19 and 3.4.9 among them, its bug CONC-821) hand
/// the first text of a prepared statement over as empty. Every answer would then be wrong.
#[cfg(feature = "mysql")]
fn check_client_library(
    conn: &mut diesel::mysql::MysqlConnection,
    opening: &Opening,
) -> Result<(), ElectionError> {
    use super::store::{Args, Session};

    let args = Args {
        text: "as sent",
        ..Args::default()
    };
    let echo = conn.texts("SELECT CAST({text} AS CHAR(20))", &args)?;
    if echo == ["as sent"] {
        return Ok(());
    }
    Err(opening
        .url
        .connect_error(diesel::ConnectionError::BadConnection(
            "the MariaDB client library returns texts empty (its bug CONC-821); update libmariadb"
                .into(),
        )))
}

/// Whether a server accepts and, as a MySQL server does, speaks first, both in time.
#[cfg(feature = "mysql")]
fn greets(address: &str, timeout: Duration) -> std::io::Result<()> {
    use std::io::{Error, ErrorKind, Read};
    use std::net::{TcpStream, ToSocketAddrs};

    let mut last = Error::new(ErrorKind::NotFound, "the host has no address");
    for address in address.to_socket_addrs()? {
        let greeting = TcpStream::connect_timeout(&address, timeout).and_then(|mut stream| {
            stream.set_read_timeout(Some(timeout))?;
            stream.read_exact(&mut [0])
        });
        match greeting {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

#[cfg(feature = "sqlite")]
impl Open for diesel::sqlite::SqliteConnection {
    fn open(opening: &Opening) -> Result<Self, ElectionError> {
        use diesel::connection::{CacheSize, SimpleConnection};
        use diesel::prelude::*;

        let DatabaseUrl::Sqlite(path) = &opening.url else {
            return Err(wrong_kind());
        };
        let mut conn = Self::establish(path).map_err(|error| opening.url.connect_error(error))?;
        // First of all: the next line already waits for a writer.
        let millis = opening.statement_timeout.as_millis().min(i32::MAX as u128);
        conn.batch_execute(&format!("PRAGMA busy_timeout = {millis}"))?;
        use_write_ahead_log(&mut conn, opening.statement_timeout)?;
        // A term that was issued survives a loss of power.
        conn.batch_execute("PRAGMA synchronous = FULL")?;
        conn.batch_execute(super::store::sqlite::PROCEDURES)?;
        // From here on, calls and beats try again by themselves: the waits of SQLite's own grow to
        // 100 ms, and who asks so seldom may find a busy file locked for seconds.
        conn.batch_execute("PRAGMA busy_timeout = 4")?;
        if !opening.prepared_statements {
            conn.set_prepared_statement_cache_size(CacheSize::Disabled);
        }
        Ok(conn)
    }
}

/// Readers and the writer then do not stop each other. The switch is kept in the file, and SQLite
/// does not wait for a lock when it makes it.
#[cfg(feature = "sqlite")]
fn use_write_ahead_log(
    conn: &mut diesel::sqlite::SqliteConnection,
    patience: Duration,
) -> Result<(), ElectionError> {
    use super::store::{Args, Session};

    let budget = retry::Budget::exactly(patience.max(Duration::from_secs(5)));
    let mut attempts = budget.start(diesel::sqlite::SqliteConnection::LONGEST_PAUSE);
    loop {
        match conn.texts("PRAGMA journal_mode = WAL", &Args::default()) {
            Ok(_) => return Ok(()),
            Err(error) => attempts.pause_or_give_up(error.into(), false)?,
        }
    }
}

fn wrong_kind() -> ElectionError {
    ElectionError::InvalidUrl {
        reason: "it is of another database than the connection".to_owned(),
    }
}

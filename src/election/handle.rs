use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::calls::{self, Call};
use super::connection::sealed::Migratable;
use super::heartbeat::Heartbeat;
use super::pool::{Open, Opening, Pool};
use super::url::DatabaseUrl;
use super::{
    ElectionCandidate, ElectionError, ElectionLeader, Expire, Leader, TenureRecord, migrate,
};

/// An election on one database: the documented functions as methods, over a pool of its own.
///
/// It is cheap to clone and can be shared between threads. Each method takes a connection from
/// the pool, so an application that exhausts its own pool does not stop its elections.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let dir = tempfile::tempdir()?;
/// # let url = format!("sqlite:{}", dir.path().join("app.db").display());
/// use leasehold::election::Election;
/// use uuid::Uuid;
///
/// let election = Election::connect(&url)?;
/// let me = Uuid::new_v4();
/// assert_eq!(election.elect(me, "nightly")?, me);
/// assert!(election.is_leader(me, "nightly")?);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Election {
    inner: Arc<Inner>,
}

struct Inner {
    pool: AnyPool,
    heartbeat: Arc<Heartbeat>,
    url: DatabaseUrl,
    /// Microseconds; zero follows the process default.
    expire: AtomicU64,
    statement_timeout: Option<Duration>,
}

enum AnyPool {
    #[cfg(feature = "postgres")]
    Postgres(Pool<diesel::pg::PgConnection>),
    #[cfg(feature = "mysql")]
    Mysql(Pool<diesel::mysql::MysqlConnection>),
    #[cfg(feature = "sqlite")]
    Sqlite(Pool<diesel::sqlite::SqliteConnection>),
}

/// Runs a function of `calls` on a connection of whichever pool there is.
macro_rules! on_pool {
    ($election:expr, $call:expr, $function:expr) => {
        match &$election.inner.pool {
            #[cfg(feature = "postgres")]
            AnyPool::Postgres(pool) => pool.lend(&$call, |conn| $function(conn, &$call)),
            #[cfg(feature = "mysql")]
            AnyPool::Mysql(pool) => pool.lend(&$call, |conn| $function(conn, &$call)),
            #[cfg(feature = "sqlite")]
            AnyPool::Sqlite(pool) => pool.lend(&$call, |conn| $function(conn, &$call)),
        }
    };
}

impl Election {
    /// Opens the database that `database_url` names and brings the election tables up to date.
    ///
    /// The URL is `postgres://USER:PASSWORD@HOST/DATABASE`, `mysql://…` or `sqlite:PATH`; any other
    /// is refused, so that a typo opens and creates nothing. Every setting has its default, see
    /// [`Election::builder`].
    ///
    /// # Errors
    ///
    /// [`InvalidUrl`](ElectionError::InvalidUrl), [`Connect`](ElectionError::Connect) and whatever
    /// [`migrate`](super::migrate) reports.
    pub fn connect(database_url: &str) -> Result<Election, ElectionError> {
        Election::builder(database_url).build()
    }

    /// The settings with which to open `database_url`.
    pub fn builder(database_url: &str) -> ElectionBuilder {
        ElectionBuilder {
            url: DatabaseUrl::parse(database_url),
            expire: None,
            pool_size: 4,
            migrate: true,
            statement_timeout: None,
            prepared_statements: true,
        }
    }

    /// See [`elect`](super::elect).
    pub fn elect<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Uuid, ElectionError> {
        let call = self.call("elect", candidate_id, ns.into())?;
        on_pool!(self, call, calls::elect)
    }

    /// See [`heartbeat`](super::heartbeat).
    pub fn heartbeat<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<(), ElectionError> {
        let call = self.call("heartbeat", candidate_id, ns.into())?;
        on_pool!(self, call, calls::register)
    }

    /// See [`register_candidate`](super::register_candidate).
    pub fn register_candidate<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<(), ElectionError> {
        let call = self.call("register_candidate", candidate_id, ns.into())?;
        on_pool!(self, call, calls::register)
    }

    /// See [`unregister_candidate`](super::unregister_candidate).
    pub fn unregister_candidate<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<(), ElectionError> {
        let call = self.call("unregister_candidate", candidate_id, ns.into())?;
        on_pool!(self, call, calls::unregister)
    }

    /// See [`is_leader`](super::is_leader).
    pub fn is_leader<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<bool, ElectionError> {
        let call = self.call("is_leader", candidate_id, ns.into())?;
        on_pool!(self, call, calls::is_leader)
    }

    /// See [`list_candidates`](super::list_candidates).
    pub fn list_candidates<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Vec<Uuid>, ElectionError> {
        let call = self.call("list_candidates", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::list_candidates)
    }

    /// See [`leader`](super::leader).
    pub fn leader<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Option<Leader>, ElectionError> {
        let call = self.call("leader", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::leader)
    }

    /// Every registration of a namespace, the expired ones too, sorted by candidate.
    pub fn candidates<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Vec<ElectionCandidate>, ElectionError> {
        let call = self.call("candidates", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::candidates)
    }

    /// The leader row of a namespace as it is stored, also when its lease is over.
    pub fn leader_row<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Option<ElectionLeader>, ElectionError> {
        let call = self.call("leader_row", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::leader_row)
    }

    /// Who led a namespace when: its last `limit` tenures, the newest first.
    pub fn history<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
        limit: u32,
    ) -> Result<Vec<TenureRecord>, ElectionError> {
        let call = self.call("history", Uuid::nil(), ns.into())?;
        on_pool!(self, call, |conn, call| calls::history(conn, call, limit))
    }

    /// Sets the lease duration of this `Election` and its clones, in seconds: 1 s to 365 days.
    ///
    /// It holds for the calls that follow; leases already written keep their end. Without it, and
    /// without [`expire`](ElectionBuilder::expire), the process default holds, see
    /// [`set_expire`](super::set_expire).
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](ElectionError::InvalidSetting) outside the range; nothing is changed.
    pub fn set_expire(&self, sec: u32) -> Result<(), ElectionError> {
        let expire = Expire::from_secs(sec)?;
        self.inner
            .expire
            .store(expire.micros() as u64, Ordering::Relaxed);
        Ok(())
    }

    /// See [`migrate`](super::migrate).
    pub fn migrate(&self) -> Result<(), ElectionError> {
        let call = self.call("migrate", Uuid::nil(), None)?;
        on_pool!(self, call, |conn, _| Migratable::migrate(conn))
    }

    fn call<'a>(
        &self,
        name: &'static str,
        me: Uuid,
        ns: Option<&'a str>,
    ) -> Result<Call<'a>, ElectionError> {
        Ok(Call::by(name, me, ns, self.expire())?.within(self.inner.statement_timeout))
    }

    pub(crate) fn beats(&self) -> &Arc<Heartbeat> {
        &self.inner.heartbeat
    }

    pub(crate) fn expire(&self) -> Expire {
        match self.inner.expire.load(Ordering::Relaxed) {
            0 => Expire::process_default(),
            micros => Expire::from_micros(micros),
        }
    }
}

impl std::fmt::Debug for Election {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Election")
            .field("database", &self.inner.url)
            .field("expire", &self.expire().duration())
            .finish_non_exhaustive()
    }
}

/// The settings of an [`Election`]. Nothing is opened before [`build`](ElectionBuilder::build).
#[derive(Debug)]
#[must_use = "nothing is opened before `build`"]
pub struct ElectionBuilder {
    url: Result<DatabaseUrl, ElectionError>,
    expire: Option<Duration>,
    pool_size: u32,
    migrate: bool,
    statement_timeout: Option<Duration>,
    prepared_statements: bool,
}

impl ElectionBuilder {
    /// How long a lease and a registration last: 100 ms to 365 days.
    ///
    /// The longer, the longer a namespace is without a leader after a crash; the shorter, the more
    /// beats and the less patience with a slow database. Every candidate of a namespace should use
    /// the same.
    ///
    /// Defaults to the process default, 60 seconds unless [`set_expire`](super::set_expire) was
    /// called.
    pub fn expire(mut self, expire: Duration) -> Self {
        self.expire = Some(expire);
        self
    }

    /// How many connections the methods may use at once: 1 to 1000.
    ///
    /// Defaults to 4. None is opened before it is needed.
    pub fn pool_size(mut self, connections: u32) -> Self {
        self.pool_size = connections;
        self
    }

    /// Whether `build` brings the election tables up to date.
    ///
    /// With `false` it only looks whether they are, and reports
    /// [`Schema`](ElectionError::Schema) if not: for roles that may not create tables.
    ///
    /// Defaults to `true`.
    pub fn migrate(mut self, migrate: bool) -> Self {
        self.migrate = migrate;
        self
    }

    /// How long one call tries again, and after which the server ends a statement: 10 ms to 1 hour.
    ///
    /// A network that swallows replies, and closes nothing, can hold a call for longer: it waits for
    /// the driver. A [`LeaderGuard`](super::LeaderGuard) does not.
    ///
    /// Defaults to a quarter of the lease, at least 2 seconds (5 on SQLite) and at most 10.
    pub fn statement_timeout(mut self, timeout: Duration) -> Self {
        self.statement_timeout = Some(timeout);
        self
    }

    /// Whether statements are prepared once and kept by the session.
    ///
    /// Behind a pooler that gives out sessions by the transaction (PgBouncer's transaction mode),
    /// set `false`: every call then runs in a transaction of its own, and nothing is kept in the
    /// session. It is not optional there: with `true` most calls fail with an error that names this
    /// remedy, but a statement can also meet another one of its name and give that one's answer.
    ///
    /// Defaults to `true`.
    pub fn prepared_statements(mut self, prepared: bool) -> Self {
        self.prepared_statements = prepared;
        self
    }

    /// Checks the settings, connects once, migrates if so set, and gives the handle.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](ElectionError::InvalidSetting) and
    /// [`InvalidUrl`](ElectionError::InvalidUrl) before anything is opened;
    /// [`Connect`](ElectionError::Connect), [`Schema`](ElectionError::Schema),
    /// [`Migration`](ElectionError::Migration) after.
    pub fn build(self) -> Result<Election, ElectionError> {
        let url = self.url?;
        let expire = self.expire.map(Expire::from_duration).transpose()?;
        check("pool_size", &self.pool_size, &(1..=1000), "1 to 1000")?;
        if let Some(timeout) = &self.statement_timeout {
            let range = Duration::from_millis(10)..=Duration::from_secs(3600);
            check(
                "statement_timeout",
                timeout,
                &range,
                "10 milliseconds to 1 hour",
            )?;
        }
        let lease = expire.unwrap_or_else(Expire::process_default).duration();
        let opening = Opening {
            url: url.clone(),
            statement_timeout: self
                .statement_timeout
                .unwrap_or((lease / 4).clamp(Duration::from_secs(2), Duration::from_secs(10))),
            prepared_statements: self.prepared_statements,
        };
        let (pool, heartbeat) = match &url {
            #[cfg(feature = "postgres")]
            DatabaseUrl::Postgres(_) => {
                let (pool, heartbeat) = open(opening, lease, self.pool_size, self.migrate)?;
                (AnyPool::Postgres(pool), heartbeat)
            }
            #[cfg(feature = "mysql")]
            DatabaseUrl::Mysql(_) => {
                let (pool, heartbeat) = open(opening, lease, self.pool_size, self.migrate)?;
                (AnyPool::Mysql(pool), heartbeat)
            }
            #[cfg(feature = "sqlite")]
            DatabaseUrl::Sqlite(_) => {
                let (pool, heartbeat) = open(opening, lease, self.pool_size, self.migrate)?;
                (AnyPool::Sqlite(pool), heartbeat)
            }
            #[allow(unreachable_patterns)]
            other => return Err(not_built_in(other)),
        };
        Ok(Election {
            inner: Arc::new(Inner {
                pool,
                heartbeat,
                url,
                expire: AtomicU64::new(expire.map_or(0, |expire| expire.micros() as u64)),
                statement_timeout: self.statement_timeout,
            }),
        })
    }
}

/// Connects once, so that a wrong address or password is told as what it is, and not as a pool
/// that never has a connection.
fn open<C: Open + Migratable>(
    opening: Opening,
    lease: Duration,
    pool_size: u32,
    migrate: bool,
) -> Result<(Pool<C>, Arc<Heartbeat>), ElectionError> {
    let mut conn = C::open(&opening)?;
    if migrate {
        conn.migrate()?;
    } else {
        migrate::check(&mut conn)?;
    }
    let for_beats = Opening {
        statement_timeout: (lease / 4).min(opening.statement_timeout),
        ..opening.clone()
    };
    let heartbeat = Heartbeat::new::<C>(for_beats);
    Ok((Pool::new(opening, pool_size), heartbeat))
}

fn check<T: PartialOrd + std::fmt::Debug>(
    setting: &'static str,
    given: &T,
    range: &std::ops::RangeInclusive<T>,
    accepted: &'static str,
) -> Result<(), ElectionError> {
    if range.contains(given) {
        return Ok(());
    }
    Err(ElectionError::InvalidSetting {
        setting,
        given: format!("{given:?}"),
        accepted,
    })
}

#[allow(dead_code)]
fn not_built_in(url: &DatabaseUrl) -> ElectionError {
    let feature = match url {
        DatabaseUrl::Postgres(_) => "postgres",
        DatabaseUrl::Mysql(_) => "mysql",
        DatabaseUrl::Sqlite(_) => "sqlite",
    };
    ElectionError::InvalidUrl {
        reason: format!("this build is without that database; enable the feature `{feature}`"),
    }
}

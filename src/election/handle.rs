use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

use super::calls::{self, Call};
use super::connection::sealed::Migratable;
use super::expected::LastAnswers;
use super::heartbeat::Heartbeat;
use super::pool::Pool;
use super::url::DatabaseUrl;
use super::{
    ElectionBuilder, ElectionCandidate, ElectionError, ElectionLeader, Expire, Leader, TenureRecord,
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
    last_answers: LastAnswers,
}

pub(super) enum AnyPool {
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
    pub(super) fn new(
        pool: AnyPool,
        heartbeat: Arc<Heartbeat>,
        url: DatabaseUrl,
        expire: Option<Expire>,
        statement_timeout: Option<Duration>,
    ) -> Election {
        let expire = AtomicU64::new(expire.map_or(0, |expire| expire.micros() as u64));
        Election {
            inner: Arc::new(Inner {
                pool,
                heartbeat,
                url,
                expire,
                statement_timeout,
                last_answers: LastAnswers::default(),
            }),
        }
    }

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
        ElectionBuilder::new(database_url)
    }

    /// See [`elect`](super::elect).
    pub fn elect<'a>(
        &self,
        candidate_id: Uuid,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Uuid, ElectionError> {
        let call = self.call("elect", candidate_id, ns.into())?;
        let answers = &self.inner.last_answers;
        let expected = answers.expected(candidate_id, call.ns());
        let elected = on_pool!(self, call, |conn, call| calls::elect(conn, call, expected))?;
        answers.keep(candidate_id, call.ns(), &elected);
        Ok(elected.leader)
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
    ///
    /// # Errors
    ///
    /// As [`leader`](super::leader).
    pub fn candidates<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Vec<ElectionCandidate>, ElectionError> {
        let call = self.call("candidates", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::candidates)
    }

    /// The leader row of a namespace as it is stored, also when its lease is over.
    ///
    /// # Errors
    ///
    /// As [`leader`](super::leader).
    pub fn leader_row<'a>(
        &self,
        ns: impl Into<Option<&'a str>>,
    ) -> Result<Option<ElectionLeader>, ElectionError> {
        let call = self.call("leader_row", Uuid::nil(), ns.into())?;
        on_pool!(self, call, calls::leader_row)
    }

    /// Who led a namespace when: its last `limit` tenures, the newest first. It keeps a thousand.
    ///
    /// # Errors
    ///
    /// As [`leader`](super::leader).
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

use std::sync::Arc;
use std::time::Duration;

use super::connection::sealed::Migratable;
use super::handle::AnyPool;
use super::heartbeat::Heartbeat;
use super::pool::{Open, Opening, Pool};
use super::url::DatabaseUrl;
use super::{Election, ElectionError, Expire, migrate};

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
    pub(super) fn new(database_url: &str) -> ElectionBuilder {
        ElectionBuilder {
            url: DatabaseUrl::parse(database_url),
            expire: None,
            pool_size: 4,
            migrate: true,
            statement_timeout: None,
            prepared_statements: true,
        }
    }

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
    /// set `false`: nothing is then kept in the session, and the server plans every statement anew.
    /// It is not optional there: with `true` most calls fail with an error that names this remedy,
    /// but a statement can also meet another one of its name and give that one's answer.
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
        let timeout = self.statement_timeout;
        Ok(Election::new(pool, heartbeat, url, expire, timeout))
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

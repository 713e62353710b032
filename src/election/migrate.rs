//! Bringing the tables up to date.
//!
//! Each migration leaves a mark, a column that was not there before, so what is pending is read
//! off the tables themselves. There is no bookkeeping to share with the application's own diesel
//! migrations, and it makes no difference who applied them.

use std::time::Duration;

use diesel::Connection;
use diesel::connection::BoxableConnection;
use diesel::migration::MigrationSource;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::ElectionError;
use super::retry::Budget;
use super::store::{Args, CANDIDATE, LEADER, Store, TENURE};

/// The migrations for PostgreSQL, to run among an application's own by
/// `diesel_migrations::MigrationHarness::run_pending_migrations`. [`migrate`](super::migrate) does the
/// same without diesel's bookkeeping; whichever comes second finds nothing to do.
#[cfg(feature = "postgres")]
pub const POSTGRES_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// The migrations for MySQL and MariaDB, see `POSTGRES_MIGRATIONS`.
#[cfg(feature = "mysql")]
pub const MYSQL_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/mysql");
/// The migrations for SQLite, see `POSTGRES_MIGRATIONS`.
#[cfg(feature = "sqlite")]
pub const SQLITE_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// A table and a column of it.
type Mark = (&'static str, &'static str);

/// What each migration, in order, leaves behind.
const MARKS: [&[Mark]; 2] = [
    &[(LEADER, "ns"), (CANDIDATE, "ns")],
    &[(LEADER, "term"), (TENURE, "ended_by")],
];

/// How long many that migrate at once wait for each other.
const PATIENCE: Duration = Duration::from_secs(30);

/// A store whose tables can be migrated.
pub trait Migrate: Store {
    /// The migrations of this database.
    fn migrations() -> EmbeddedMigrations;

    /// Runs `work` while no other process migrates the same database.
    fn alone<T>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError>;
}

/// Applies what is pending; does nothing, and needs no privilege, when nothing is.
pub(crate) fn migrate<S>(store: &mut S) -> Result<(), ElectionError>
where
    S: Migrate + BoxableConnection<<S as Connection>::Backend>,
    EmbeddedMigrations: MigrationSource<<S as Connection>::Backend>,
{
    let mut attempts = Budget::exactly(PATIENCE).start(S::LONGEST_PAUSE);
    loop {
        let in_transaction = store.depth()? > 0;
        match migrate_once(store) {
            Ok(()) => return Ok(()),
            Err(error) => attempts.pause_or_give_up(error, in_transaction)?,
        }
    }
}

fn migrate_once<S>(store: &mut S) -> Result<(), ElectionError>
where
    S: Migrate + BoxableConnection<<S as Connection>::Backend>,
    EmbeddedMigrations: MigrationSource<<S as Connection>::Backend>,
{
    if first_missing(store)?.is_none() {
        return Ok(());
    }
    store.alone(|store| {
        let mut migrations = MigrationSource::<S::Backend>::migrations(&S::migrations())
            .map_err(|error| failed(&*error))?;
        migrations.sort_by(|a, b| a.name().version().cmp(&b.name().version()));
        for (migration, marks) in migrations.iter().zip(MARKS) {
            if missing(store, marks)?.is_some() {
                tracing::info!(migration = %migration.name(), "migrating the election tables");
                migration.run(store).map_err(|error| failed(&*error))?;
            }
        }
        check(store)
    })
}

/// Refuses tables that are missing or older than this version.
pub(crate) fn check<S: Store>(store: &mut S) -> Result<(), ElectionError> {
    let found = match first_missing(store)? {
        None => return Ok(()),
        Some((table, "ns")) => format!("{table} is missing"),
        Some((table, column)) => {
            format!("they are of an older version: {table}.{column} is missing")
        }
    };
    Err(ElectionError::Schema { found })
}

fn first_missing<S: Store>(store: &mut S) -> Result<Option<Mark>, ElectionError> {
    missing(store, MARKS.concat().as_slice())
}

fn missing<S: Store>(store: &mut S, marks: &[Mark]) -> Result<Option<Mark>, ElectionError> {
    for &(table, column) in marks {
        let args = Args {
            text: table,
            me: column,
            ..Args::default()
        };
        if !store.has_column(&args)? {
            return Ok(Some((table, column)));
        }
    }
    Ok(None)
}

fn failed(error: &dyn std::fmt::Display) -> ElectionError {
    ElectionError::Migration {
        detail: error.to_string(),
    }
}

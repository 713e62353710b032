//! Bringing the tables up to date.
//!
//! Each migration leaves a mark, a column that was not there before, so what is pending is read
//! off the tables themselves. There is no bookkeeping to share with the application's own diesel
//! migrations, and it makes no difference who applied them.

use diesel::Connection;
use diesel::connection::BoxableConnection;
use diesel::migration::MigrationSource;
use diesel_migrations::{EmbeddedMigrations, embed_migrations};

use super::ElectionError;
use super::store::{Args, LEADER, Store, TENURE};

/// The migrations for PostgreSQL, to run among an application's own.
#[cfg(feature = "postgres")]
pub const POSTGRES_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/postgres");
/// The migrations for MySQL and MariaDB, to run among an application's own.
#[cfg(feature = "mysql")]
pub const MYSQL_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/mysql");
/// The migrations for SQLite, to run among an application's own.
#[cfg(feature = "sqlite")]
pub const SQLITE_MIGRATIONS: EmbeddedMigrations = embed_migrations!("migrations/sqlite");

/// The column that each migration, in order, creates last.
const MARKS: [(&str, &str); 2] = [(LEADER, "ns"), (TENURE, "ended_by")];

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
    if first_pending(store)?.is_none() {
        return Ok(());
    }
    store.alone(|store| {
        let Some(pending) = first_pending(store)? else {
            return Ok(());
        };
        let mut migrations = MigrationSource::<S::Backend>::migrations(&S::migrations())
            .map_err(|error| failed(&*error))?;
        migrations.sort_by(|a, b| a.name().version().cmp(&b.name().version()));
        for migration in migrations.iter().skip(pending) {
            tracing::info!(migration = %migration.name(), "migrating the election tables");
            migration.run(store).map_err(|error| failed(&*error))?;
        }
        check(store)
    })
}

/// Refuses tables that are missing or older than this version.
pub(crate) fn check<S: Store>(store: &mut S) -> Result<(), ElectionError> {
    let found = match first_pending(store)? {
        None => return Ok(()),
        Some(0) => "they are missing".to_owned(),
        Some(pending) => {
            let (table, column) = MARKS[pending];
            format!("they are of an older version: {table}.{column} is missing")
        }
    };
    Err(ElectionError::Schema { found })
}

fn first_pending<S: Store>(store: &mut S) -> Result<Option<usize>, ElectionError> {
    for (index, (table, column)) in MARKS.into_iter().enumerate() {
        let args = Args {
            text: table,
            me: column,
            ..Args::default()
        };
        if !store.has_column(&args)? {
            return Ok(Some(index));
        }
    }
    Ok(None)
}

fn failed(error: &dyn std::fmt::Display) -> ElectionError {
    ElectionError::Migration {
        detail: error.to_string(),
    }
}

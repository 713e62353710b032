//! `leasehold migrate`: the tables, or the SQL that makes them.

use crate::program::args::MigrateArgs;
use crate::program::database::{Kind, Tables, bounded};
use crate::program::failure::{Failure, YES};
use crate::program::output::{print, say};

macro_rules! migrations {
    ($database:literal) => {
        [
            (
                "2026-11-30-000001_create_election",
                include_str!(concat!(
                    "../../../migrations/",
                    $database,
                    "/2026-11-30-000001_create_election/up.sql"
                )),
            ),
            (
                "2026-11-30-000002_add_terms",
                include_str!(concat!(
                    "../../../migrations/",
                    $database,
                    "/2026-11-30-000002_add_terms/up.sql"
                )),
            ),
        ]
    };
}

const POSTGRES: [(&str, &str); 2] = migrations!("postgres");
const MYSQL: [(&str, &str); 2] = migrations!("mysql");
const SQLITE: [(&str, &str); 2] = migrations!("sqlite");

pub fn migrate(args: MigrateArgs) -> Result<u8, Failure> {
    if args.print {
        return print_sql(&args);
    }
    bounded(args.timeout, move || {
        args.database.open(Tables::Create, None).map(drop)
    })?;
    say("The election tables are up to date.");
    Ok(YES)
}

fn print_sql(args: &MigrateArgs) -> Result<u8, Failure> {
    let migrations = match args.database.kind() {
        Some(Kind::Postgres) => POSTGRES,
        Some(Kind::Mysql) => MYSQL,
        Some(Kind::Sqlite) => SQLITE,
        // Refused by the library, which lists what it takes, without opening anything.
        None => return args.database.open(Tables::MustExist, None).map(|_| YES),
    };
    let parts = migrations.map(|(name, sql)| format!("-- {name}\n{}", sql.trim_end()));
    print(&parts.join("\n\n"))?;
    Ok(YES)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is printed is all that is run: a new migration must be added here.
    #[test]
    fn every_migration_is_printed() {
        for (database, printed) in [("postgres", POSTGRES), ("mysql", MYSQL), ("sqlite", SQLITE)] {
            let dir = format!("{}/migrations/{database}", env!("CARGO_MANIFEST_DIR"));
            let mut names: Vec<String> = std::fs::read_dir(dir)
                .expect("the migrations")
                .map(|entry| {
                    entry
                        .expect("an entry")
                        .file_name()
                        .into_string()
                        .expect("a name")
                })
                .collect();
            names.sort();
            assert_eq!(names, printed.map(|(name, _)| name), "{database}");
        }
    }
}

//! An empty database of each kind, on servers of this process that sync every commit to the disk.

use std::sync::OnceLock;
use std::time::Duration;

use diesel::connection::SimpleConnection;
use diesel::prelude::*;
use leasehold::election::Election;

use super::servers::{MariaDb, Options, Postgres};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Postgres,
    MariaDb,
    Sqlite,
}

pub const ALL: [Kind; 3] = [Kind::Postgres, Kind::MariaDb, Kind::Sqlite];

const DURABLE: Options<'_> = Options {
    fsync: true,
    extra: &[],
};

pub fn postgres() -> &'static Postgres {
    static SHARED: OnceLock<Postgres> = OnceLock::new();
    SHARED.get_or_init(|| Postgres::start_with(DURABLE))
}

pub fn mariadb() -> &'static MariaDb {
    static SHARED: OnceLock<MariaDb> = OnceLock::new();
    SHARED.get_or_init(|| MariaDb::start_with(DURABLE))
}

/// The election tables in a database of their own, reached through a Unix socket or a file.
pub struct Database {
    pub kind: Kind,
    pub name: String,
    pub url: String,
    /// Holds the file of an SQLite database.
    _dir: Option<tempfile::TempDir>,
}

impl Kind {
    pub fn label(self) -> &'static str {
        match self {
            Kind::Postgres => "postgres",
            Kind::MariaDb => "mariadb",
            Kind::Sqlite => "sqlite",
        }
    }

    pub fn fresh(self) -> Database {
        let mut dir = None;
        let after_slash = |url: &str| url.rsplit('/').next().expect("a database").to_owned();
        let (name, url) = match self {
            Kind::Postgres => {
                let name = after_slash(&postgres().fresh_database());
                let url = postgres().socket_url_of(&name);
                (name, url)
            }
            Kind::MariaDb => {
                let name = after_slash(&mariadb().fresh_database());
                let url = mariadb().socket_url_of(&name);
                (name, url)
            }
            Kind::Sqlite => {
                let made = dir.insert(tempfile::tempdir().expect("a temporary directory"));
                let file = made.path().join("bench.db").display().to_string();
                (file.clone(), format!("sqlite:{file}"))
            }
        };
        let database = Database {
            kind: self,
            name,
            url,
            _dir: dir,
        };
        database.election(1);
        database
    }
}

impl Database {
    /// A handle with that many connections, and leases that do not end within a benchmark.
    pub fn election(&self, connections: usize) -> Election {
        Election::builder(&self.url)
            .expire(Duration::from_secs(3600))
            .pool_size(u32::try_from(connections).expect("few"))
            .build()
            .expect("the database was just made")
    }

    /// Runs SQL beside the library.
    pub fn exec(&self, sql: &str) {
        match self.kind {
            Kind::Postgres => drop(postgres().exec_in(&self.name, sql)),
            Kind::MariaDb => drop(mariadb().exec_in(&self.name, sql)),
            Kind::Sqlite => {
                let mut conn = SqliteConnection::establish(&self.name).expect("the file");
                conn.batch_execute(sql).expect("SQL that SQLite takes");
            }
        }
    }

    /// Registers that many candidates in a namespace, for a day.
    pub fn fill(&self, ns: &str, candidates: usize) {
        let rows = match self.kind {
            Kind::Postgres => format!(
                "SELECT '{ns}', gen_random_uuid()::text, now(), now() + interval '1 day'
                 FROM generate_series(1, {candidates})"
            ),
            Kind::MariaDb => format!(
                "SELECT '{ns}', UUID(), UTC_TIMESTAMP(6), UTC_TIMESTAMP(6) + INTERVAL 1 DAY
                 FROM seq_1_to_{candidates}"
            ),
            Kind::Sqlite => format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {candidates})
                 SELECT '{ns}',
                        lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-' || hex(randomblob(2))
                              || '-' || hex(randomblob(2)) || '-' || hex(randomblob(6))),
                        strftime('%Y-%m-%d %H:%M:%f000', 'now'),
                        strftime('%Y-%m-%d %H:%M:%f000', 'now', '+1 day')
                 FROM n"
            ),
        };
        let analyze = match self.kind {
            Kind::MariaDb => "ANALYZE TABLE gemstone_election_candidate",
            _ => "ANALYZE gemstone_election_candidate",
        };
        self.exec(&format!(
            "INSERT INTO gemstone_election_candidate (ns, candidate_id, last_heartbeat_at, expires_at)
             {rows};
             {analyze};"
        ));
    }
}

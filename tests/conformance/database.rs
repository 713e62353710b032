//! What the suite has to know of each database: how to get an empty one, and the SQL with which a
//! test disturbs an election from outside.

use std::time::{Duration, Instant};

use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use leasehold::election::{self, Election, ElectionConnection};

use crate::support::Directory;

/// Makes every test named a test of each database that the build has.
macro_rules! on_every_database {
    ($($name:ident),* $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(#[test] fn $name() { super::$name::<diesel::pg::PgConnection>() })*
        }
        #[cfg(feature = "mysql")]
        mod mariadb {
            $(#[test] fn $name() { super::$name::<diesel::mysql::MysqlConnection>() })*
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            $(#[test] fn $name() { super::$name::<diesel::sqlite::SqliteConnection>() })*
        }
    };
}

/// A kind of connection the suite runs on.
// The test binaries share this, and each uses a part.
#[allow(dead_code)]
pub trait Database: ElectionConnection + Connection + Send + 'static {
    /// An instant relative to now, as an SQL expression.
    fn instant(seconds: i64) -> String;

    /// Begins a transaction that holds the leader row of `ns`.
    const HOLD: &'static str;

    /// Asks for every setting of the session.
    const SETTINGS: &'static str;

    /// Locks the whole table of the leader rows.
    const HOLD_TABLE: &'static str;
    /// Ends that.
    const FREE_TABLE: &'static str = "ROLLBACK";

    /// The isolation levels a session can be set to, each as the statement that does it.
    const LEVELS: &'static [&'static str];

    fn empty() -> (String, Option<Directory>);
    fn open(url: &str) -> Self;
    fn number(&mut self, sql: &str) -> i64;
    fn text(&mut self, sql: &str) -> String;

    /// The lease of `ns` ran out a minute ago.
    fn lapse(&mut self, ns: &str) {
        self.run(&format!(
            "UPDATE gemstone_election_leader SET lease_expires_at = {} WHERE ns = '{ns}'",
            Self::instant(-60)
        ));
    }

    /// Registrations of candidates that have gone, and were last heard of so many seconds from now.
    fn leave_registrations(&mut self, ns: &str, count: usize, seconds: i64) {
        let at = Self::instant(seconds);
        let rows: Vec<String> = (0..count)
            .map(|_| format!("('{ns}', '{}', {at}, {at})", uuid::Uuid::new_v4()))
            .collect();
        self.run(&format!(
            "INSERT INTO gemstone_election_candidate VALUES {}",
            rows.join(", ")
        ));
    }

    /// Waits where SQLite would not: the connections of the suite have no busy timeout.
    fn run(&mut self, sql: &str) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = self.batch_execute(sql) {
            let locked = error.to_string().contains("database is locked");
            assert!(locked && Instant::now() < deadline, "{sql}: {error}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    fn hold_row(&mut self, ns: &str) {
        let hold = Self::HOLD.replace("NS", ns);
        crate::support::wait_until(Duration::from_secs(60), "the row is free", || {
            let held = self.batch_execute(&hold);
            if held.is_err() {
                // What began the transaction may have succeeded.
                let _ = self.batch_execute("ROLLBACK");
            }
            held.is_ok()
        });
    }

    /// Every setting of this session.
    fn settings(&mut self) -> Vec<String> {
        let settings = self.text(Self::SETTINGS);
        settings.lines().map(str::to_owned).collect()
    }

    /// Everything that is stored about who leads `ns`.
    fn leader_bytes(&mut self, ns: &str) -> String {
        let text = |column: &str| format!("coalesce(cast({column} as char(40)), '-')");
        let parts = ["leader_id", "lease_expires_at", "updated_at", "term"].map(text);
        let row = parts.iter().map(|part| {
            self.text(&format!(
                "SELECT {part} AS value FROM gemstone_election_leader WHERE ns = '{ns}'"
            ))
        });
        row.collect::<Vec<_>>().join(" ")
    }
}

/// An empty database with the election tables, for one test.
pub struct Fresh {
    pub url: String,
    _dir: Option<Directory>,
}

// The test binaries share this, and each uses a part.
#[allow(dead_code)]
impl Fresh {
    pub fn new<C: Database>() -> Fresh {
        let fresh = Fresh::without_tables::<C>();
        election::migrate(&mut fresh.connect::<C>()).expect("migrate");
        fresh
    }

    pub fn without_tables<C: Database>() -> Fresh {
        let (url, dir) = C::empty();
        Fresh { url, _dir: dir }
    }

    /// The database at `url`, whatever is in it.
    pub fn at(url: String) -> Fresh {
        Fresh { url, _dir: None }
    }

    pub fn connect<C: Database>(&self) -> C {
        C::open(&self.url)
    }

    pub fn election(&self) -> Election {
        Election::connect(&self.url).expect("connect")
    }

    pub fn election_with(&self, expire: Duration) -> Election {
        let builder = Election::builder(&self.url).expire(expire).pool_size(40);
        builder.build().expect("connect")
    }
}

#[derive(QueryableByName)]
struct Number {
    #[diesel(sql_type = BigInt)]
    value: i64,
}

#[derive(QueryableByName)]
struct Word {
    #[diesel(sql_type = Text)]
    value: String,
}

macro_rules! queries {
    () => {
        fn number(&mut self, sql: &str) -> i64 {
            let row: Number = diesel::sql_query(sql).get_result(self).expect(sql);
            row.value
        }

        fn text(&mut self, sql: &str) -> String {
            let row: Word = diesel::sql_query(sql).get_result(self).expect(sql);
            row.value
        }
    };
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
const HOLD_ROW: &str = "BEGIN; SELECT 1 FROM gemstone_election_leader WHERE ns = 'NS' FOR UPDATE";

#[cfg(feature = "postgres")]
impl Database for diesel::pg::PgConnection {
    fn instant(seconds: i64) -> String {
        format!("clock_timestamp() + interval '{seconds} seconds'")
    }

    const HOLD: &'static str = HOLD_ROW;
    const SETTINGS: &'static str = "
        SELECT string_agg(name || ' = ' || setting, chr(10) ORDER BY name) AS value FROM pg_settings";
    const HOLD_TABLE: &'static str = "BEGIN; LOCK TABLE gemstone_election_leader";
    const LEVELS: &'static [&'static str] = &[
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    ];

    fn empty() -> (String, Option<Directory>) {
        (crate::support::Postgres::shared().fresh_database(), None)
    }

    fn open(url: &str) -> Self {
        Self::establish(url).expect("connect")
    }

    queries!();
}

#[cfg(feature = "mysql")]
impl Database for diesel::mysql::MysqlConnection {
    fn instant(seconds: i64) -> String {
        format!("UTC_TIMESTAMP(6) + INTERVAL {seconds} SECOND")
    }

    const HOLD: &'static str = HOLD_ROW;
    // Without what tells of the last statement.
    const SETTINGS: &'static str = "
        SELECT GROUP_CONCAT(variable_name, ' = ', COALESCE(variable_value, 'NULL')
                            ORDER BY variable_name SEPARATOR '\n') AS value
        FROM information_schema.session_variables
        WHERE variable_name NOT IN ('TIMESTAMP', 'RAND_SEED1', 'RAND_SEED2', 'WARNING_COUNT',
                                    'ERROR_COUNT', 'LAST_INSERT_ID', 'IDENTITY', 'IN_TRANSACTION')";
    const HOLD_TABLE: &'static str = "LOCK TABLES gemstone_election_leader WRITE";
    const FREE_TABLE: &'static str = "UNLOCK TABLES";
    const LEVELS: &'static [&'static str] = &[
        "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE",
    ];

    fn empty() -> (String, Option<Directory>) {
        (crate::support::MariaDb::shared().fresh_database(), None)
    }

    fn open(url: &str) -> Self {
        Self::establish(url).expect("connect")
    }

    queries!();
}

#[cfg(feature = "sqlite")]
impl Database for diesel::sqlite::SqliteConnection {
    fn instant(seconds: i64) -> String {
        format!("strftime('%Y-%m-%d %H:%M:%f000', 'now', '{seconds} seconds')")
    }

    const HOLD: &'static str = "BEGIN IMMEDIATE";
    const SETTINGS: &'static str = "
        SELECT (SELECT 'busy_timeout = ' || timeout FROM pragma_busy_timeout) || char(10)
            || (SELECT 'synchronous = ' || synchronous FROM pragma_synchronous) || char(10)
            || (SELECT 'temp_store = ' || temp_store FROM pragma_temp_store) || char(10)
            || (SELECT 'foreign_keys = ' || foreign_keys FROM pragma_foreign_keys) || char(10)
            || (SELECT 'temporary = ' || count(*) FROM sqlite_temp_master) AS value";
    const HOLD_TABLE: &'static str = "BEGIN EXCLUSIVE";
    const LEVELS: &'static [&'static str] = &["PRAGMA read_uncommitted = 0"];

    fn empty() -> (String, Option<Directory>) {
        let dir = Directory::new();
        let url = format!("sqlite:{}", dir.path().join("election.db").display());
        (url, Some(dir))
    }

    fn open(url: &str) -> Self {
        let path = url.strip_prefix("sqlite:").expect("an sqlite URL");
        Self::establish(path).expect("connect")
    }

    queries!();
}

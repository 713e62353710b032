//! Bad input, wrong addresses, secrets: each a typed error that says what to do, and nothing of a
//! password anywhere.

#![cfg(all(feature = "postgres", feature = "mysql", feature = "sqlite"))]

mod support;

use std::error::Error;
use std::time::{Duration, Instant};

use leasehold::election::{Election, ElectionError};
use support::{MariaDb, Postgres};
use uuid::Uuid;

const SECRET: &str = "hunter2-s3cret";

/// All that an error can show of itself.
fn shown(error: &ElectionError) -> String {
    let mut text = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(error) = source {
        text += &format!(" {error} {error:?}");
        source = error.source();
    }
    text
}

#[track_caller]
fn refused(url: &str) -> ElectionError {
    let error = Election::connect(url).expect_err("an error");
    let text = shown(&error);
    for part in [SECRET, "hunter2", "s3cret"] {
        assert!(!text.contains(part), "{text}");
    }
    error
}

/// F36, for every way in which a connection fails.
#[test]
fn a_password_appears_in_no_error_and_no_debug() {
    let (postgres, mariadb) = (Postgres::shared(), MariaDb::shared());
    let servers = [
        ("postgres", postgres.address().port(), postgres.url()),
        ("mysql", mariadb.address().port(), mariadb.url()),
    ];
    for (scheme, port, url) in servers {
        let wrong_password = refused(&format!("{scheme}://leasehold:{SECRET}@127.0.0.1:{port}/x"));
        assert!(
            matches!(wrong_password, ElectionError::Connect { .. }),
            "{wrong_password}"
        );
        assert!(!wrong_password.is_retryable(), "{wrong_password}");
        assert!(
            wrong_password.to_string().contains("check"),
            "{wrong_password}"
        );

        let closed = support::free_port();
        let no_server = refused(&format!("{scheme}://u:{SECRET}@127.0.0.1:{closed}/x"));
        assert!(
            matches!(no_server, ElectionError::Connect { .. }),
            "{no_server}"
        );
        assert!(no_server.is_retryable(), "{no_server}");

        for malformed in [
            format!("{scheme}://u:{SECRET}/@127.0.0.1:{port}/x"),
            format!("{scheme}://u:{SECRET}@127.0.0.1:port/x"),
            format!("{scheme}://u:a@{SECRET}@127.0.0.1/x"),
            format!("{scheme}://u:{SECRET}@127.0.0.1:{port}/x?y"),
            format!("{scheme}://u:{SECRET}@127.0.0.1:{port}"),
            format!("{scheme}:u:{SECRET}@127.0.0.1:{port}"),
            format!("{scheme}://u:{SECRET}%zz@127.0.0.1:{port}/x"),
            format!("{scheme}://u:{SECRET}\0@127.0.0.1:{port}/x"),
            format!("{scheme}x://u:{SECRET}@127.0.0.1:{port}/x"),
        ] {
            refused(&malformed);
        }
        let election = Election::connect(&url).unwrap();
        let builder = Election::builder(&url);
        let password = if scheme == "mysql" {
            mariadb.password()
        } else {
            postgres.password()
        };
        for text in [
            format!("{election:?} {election:#?}"),
            format!("{builder:?}"),
        ] {
            assert!(
                !text.contains(password) && text.contains("127.0.0.1"),
                "{text}"
            );
        }
    }
    refused(SECRET);
    refused(&format!("{SECRET}:x"));
    refused(&format!("sqlit:{SECRET}"));
}

#[test]
fn a_typo_opens_and_creates_nothing() {
    let dir = support::Directory::new();
    std::env::set_current_dir(dir.path()).unwrap();
    for url in [
        "",
        "x.db",
        "sqlite",
        "sqlite:",
        "postgress:typo",
        "file:x.db",
        "sqlite:x.db?mode=rw",
    ] {
        let error = Election::connect(url).unwrap_err();
        assert!(
            matches!(error, ElectionError::InvalidUrl { .. }),
            "{url}: {error}"
        );
        let text = error.to_string();
        for kind in ["postgres://", "mysql://", "sqlite:PATH"] {
            assert!(text.contains(kind), "{text}");
        }
    }
    let absent = Election::connect("sqlite:no/such/directory/x.db").unwrap_err();
    assert!(matches!(absent, ElectionError::Connect { .. }), "{absent}");
    assert!(!absent.is_retryable());
    assert!(absent.to_string().contains("check the path"), "{absent}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

/// A caller that tries its own statement again as long as the error says so comes to an end; and what
/// a driver tells in several lines is one line of a log.
#[test]
fn what_a_statement_of_the_caller_reports_is_judged_as_its_own() {
    use diesel::result::{DatabaseErrorKind, Error};
    let database = |kind, message: &str| Error::DatabaseError(kind, Box::new(message.to_owned()));
    for (source, passes) in [
        (database(DatabaseErrorKind::UniqueViolation, "twice"), false),
        (Error::RollbackTransaction, false),
        (
            database(DatabaseErrorKind::SerializationFailure, "again"),
            true,
        ),
        (
            database(DatabaseErrorKind::Unknown, "the server\n\twent away\n"),
            true,
        ),
    ] {
        let error = ElectionError::from(source);
        let text = error.to_string();
        assert_eq!(error.is_retryable(), passes, "{text}");
        assert_eq!(text.contains("will not help"), !passes, "{text}");
        assert!(!text.contains(['\n', '\t']), "{text}");
    }
}

#[test]
fn a_file_that_is_no_database_is_told() {
    let dir = support::Directory::new();
    let path = dir.path().join("notes.txt");
    let text = "these are notes and no database\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let error = Election::connect(&format!("sqlite:{}", path.display())).unwrap_err();
    assert!(error.to_string().contains("not a database"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
}

/// F35
#[test]
fn settings_have_one_accepted_range_each() {
    let dir = support::Directory::new();
    let url = format!("sqlite:{}", dir.path().join("x.db").display());
    let year = Duration::from_secs(365 * 24 * 60 * 60);
    let odd = [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ];
    for duration in odd
        .into_iter()
        .chain([year + Duration::from_nanos(1), Duration::from_millis(99)])
    {
        let error = Election::builder(&url)
            .expire(duration)
            .build()
            .unwrap_err();
        assert!(
            matches!(
                error,
                ElectionError::InvalidSetting {
                    setting: "expire",
                    ..
                }
            ),
            "{error}"
        );
    }
    for duration in odd
        .into_iter()
        .chain([Duration::from_secs(3601), Duration::from_millis(9)])
    {
        let error = Election::builder(&url)
            .statement_timeout(duration)
            .build()
            .unwrap_err();
        let setting = "statement_timeout";
        assert!(
            matches!(error, ElectionError::InvalidSetting { setting: s, .. } if s == setting),
            "{error}"
        );
    }
    for size in [0, 1001, u32::MAX] {
        let error = Election::builder(&url).pool_size(size).build().unwrap_err();
        assert!(
            matches!(
                error,
                ElectionError::InvalidSetting {
                    setting: "pool_size",
                    ..
                }
            ),
            "{error}"
        );
    }
    assert!(
        !std::fs::exists(dir.path().join("x.db")).unwrap(),
        "nothing is opened before"
    );
    for expire in [Duration::from_millis(100), year] {
        let election = Election::builder(&url).expire(expire).build().unwrap();
        let me = Uuid::new_v4();
        let ns = format!("{expire:?}");
        assert_eq!(election.elect(me, ns.as_str()).unwrap(), me);
        let row = election.leader_row(ns.as_str()).unwrap().unwrap();
        let life = (row.lease_expires_at.unwrap() - row.updated_at)
            .to_std()
            .unwrap();
        assert_eq!(life, expire);
    }
}

/// A server that goes away and comes back: the handle goes on, with the connections it had dead.
#[test]
fn a_handle_survives_a_restart_of_the_server() {
    fn check(url: &str, restart: impl Fn(), stop: impl Fn(), start: impl Fn()) {
        let election = Election::builder(url)
            .statement_timeout(Duration::from_secs(5))
            .build()
            .unwrap();
        let me = Uuid::new_v4();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| election.elect(me, "x").unwrap());
            }
        });
        let term = election.leader("x").unwrap().unwrap().term;
        restart();
        for _ in 0..4 {
            assert_eq!(election.elect(me, "x").unwrap(), me);
        }
        assert_eq!(election.leader("x").unwrap().unwrap().term, term);
        stop();
        let began = Instant::now();
        let error = election.elect(me, "x").unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(
            began.elapsed() < Duration::from_secs(10),
            "{:?}",
            began.elapsed()
        );
        start();
        assert_eq!(election.elect(me, "x").unwrap(), me);
    }
    let postgres = Postgres::start();
    let url = postgres.fresh_database();
    check(
        &url,
        || postgres.restart(),
        || postgres.stop(),
        || postgres.start_again(),
    );
    let mariadb = MariaDb::start();
    let url = mariadb.fresh_database();
    check(
        &url,
        || mariadb.restart(),
        || mariadb.stop(),
        || mariadb.start_again(),
    );
}

/// F14: MariaDB rolls back the statement that waited too long, and nothing else.
#[test]
fn a_lock_wait_timeout_on_mariadb_leaves_nothing_half_done() {
    use diesel::connection::SimpleConnection;
    use diesel::prelude::*;
    let url = MariaDb::shared().fresh_database();
    let election = Election::builder(&url)
        .statement_timeout(Duration::from_millis(1500))
        .build()
        .unwrap();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    election.elect(a, "x").unwrap();
    let mut holder = diesel::mysql::MysqlConnection::establish(&url).unwrap();
    holder
        .batch_execute("UPDATE gemstone_election_leader SET lease_expires_at = UTC_TIMESTAMP(6) - INTERVAL 1 SECOND")
        .unwrap();
    // The last statement of an acquisition writes the candidate: it waits, in vain.
    holder
        .batch_execute(&format!(
            "INSERT INTO gemstone_election_candidate VALUES ('x', '{b}', UTC_TIMESTAMP(6), UTC_TIMESTAMP(6));
             BEGIN; UPDATE gemstone_election_candidate SET expires_at = expires_at WHERE candidate_id = '{b}';
             SELECT 1 FROM gemstone_election_candidate WHERE candidate_id = '{b}' FOR UPDATE"
        ))
        .unwrap();
    let error = election.elect(b, "x").unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(election.leader("x").unwrap(), None);
    let row = election.leader_row("x").unwrap().unwrap();
    assert_eq!((row.leader_id, row.term.get()), (Some(a), 1));
    assert_eq!(election.history("x", 9).unwrap().len(), 1);
    assert!(election.history("x", 9).unwrap()[0].ended_at.is_none());
    holder.batch_execute("ROLLBACK").unwrap();
    assert_eq!(election.elect(b, "x").unwrap(), b);
    assert_eq!(election.leader("x").unwrap().unwrap().term.get(), 2);
}

/// A role that may use the tables but not make any.
#[test]
fn a_role_without_the_right_to_create_tables_works_once_they_exist() {
    let postgres = Postgres::shared();
    let url = postgres.fresh_database();
    Election::connect(&url).unwrap();
    let database = url
        .rsplit('/')
        .next()
        .unwrap()
        .split('?')
        .next()
        .unwrap()
        .to_owned();
    postgres.exec_in(
        &database,
        "CREATE ROLE plain LOGIN PASSWORD 'plain-pw';
         GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain",
    );
    let port = postgres.address().port();
    let plain = format!("postgres://plain:plain-pw@127.0.0.1:{port}/{database}");
    let me = Uuid::new_v4();
    assert_eq!(
        Election::connect(&plain).unwrap().elect(me, "x").unwrap(),
        me
    );

    postgres.exec_in(
        &database,
        "REVOKE UPDATE ON gemstone_election_leader FROM plain",
    );
    let error = Election::connect(&plain)
        .unwrap()
        .elect(me, "x")
        .unwrap_err();
    assert!(error.to_string().contains("permission denied"), "{error}");
}

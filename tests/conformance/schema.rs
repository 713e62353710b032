//! Tables: made by many at once, by others, too old, missing.

use std::time::Duration;

use leasehold::election::{
    self, Election, ElectionError, elect, is_leader, leader, list_candidates,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::support::child::{self, Role};

on_every_database![
    processes_that_start_at_once_all_migrate_and_elect_one,
    missing_tables_are_told_with_the_remedy,
    tables_of_an_older_version_are_told_and_brought_up_to_date,
    migrating_again_changes_nothing,
    a_broken_first_migration_is_taken_up_again,
];

/// F34
fn processes_that_start_at_once_all_migrate_and_elect_one<C: Database>() {
    for round in 0..3 {
        let fresh = Fresh::without_tables::<C>();
        let processes: Vec<Role> = (0..8)
            .map(|_| {
                let mut command = child::in_child("schema::role_connects_and_elects");
                Role::spawn(command.env("URL", &fresh.url))
            })
            .collect();
        let mut processes: Vec<Role> = processes;
        for process in &processes {
            assert_eq!(process.line(Duration::from_secs(60)), "ready");
        }
        for process in &mut processes {
            process.tell("go");
        }
        let leaders: Vec<String> = processes
            .iter()
            .map(|process| process.line(Duration::from_secs(60)))
            .collect();
        assert!(
            leaders.windows(2).all(|two| two[0] == two[1]),
            "round {round}: {leaders:?}"
        );
    }
}

/// Rows of different namespaces may then stand at the same place, each in a file of its own.
#[cfg(feature = "postgres")]
#[test]
fn an_operators_partitions_keep_namespaces_apart() {
    use diesel::pg::PgConnection;

    const NAMESPACES: [&str; 8] = ["0", "1", "2", "3", "4", "5", "6", "7"];
    let fresh = Fresh::new::<PgConnection>();
    let conn = &mut fresh.connect::<PgConnection>();
    for table in ["gemstone_election_leader", "gemstone_election_candidate"] {
        conn.run(&format!(
            "ALTER TABLE {table} RENAME TO whole;
             CREATE TABLE {table} (LIKE whole INCLUDING ALL) PARTITION BY HASH (ns);
             CREATE TABLE {table}_0 PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER 0);
             CREATE TABLE {table}_1 PARTITION OF {table} FOR VALUES WITH (MODULUS 2, REMAINDER 1);
             DROP TABLE whole"
        ));
    }
    let election = fresh.election();
    let me = Uuid::new_v4();
    for ns in NAMESPACES {
        elect(conn, me, Some(ns)).unwrap();
        conn.leave_registrations(ns, 1, -60);
    }
    // Both begin anew.
    conn.run("VACUUM FULL gemstone_election_leader");
    conn.run("VACUUM FULL gemstone_election_candidate");
    for ns in NAMESPACES {
        let leases = |conn: &mut PgConnection| {
            let others = NAMESPACES.iter().filter(|other| **other != ns);
            others.map(|ns| conn.leader_bytes(ns)).collect::<Vec<_>>()
        };
        let before = leases(conn);
        for _ in 0..2 {
            assert_eq!(elect(conn, me, Some(ns)).unwrap(), me);
            assert_eq!(election.elect(me, ns).unwrap(), me);
            election.heartbeat(me, ns).unwrap();
        }
        assert_eq!(leases(conn), before, "after those of {ns}");
        for ns in NAMESPACES {
            assert_eq!(election.list_candidates(ns).unwrap(), [me], "{ns}");
        }
    }
}

#[test]
fn role_connects_and_elects() {
    let Some(parent) = child::role("schema::role_connects_and_elects") else {
        return;
    };
    let url = std::env::var("URL").expect("URL");
    parent.say("ready");
    parent.hear();
    let elected = Election::connect(&url).and_then(|election| election.elect(Uuid::new_v4(), "x"));
    match elected {
        Ok(leader) => parent.say(leader),
        Err(error) => parent.say(format!("{error:?}")),
    }
    parent.wait_for_the_end();
}

fn missing_tables_are_told_with_the_remedy<C: Database>() {
    let fresh = Fresh::without_tables::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    let errors = [
        Election::builder(&fresh.url)
            .migrate(false)
            .build()
            .unwrap_err(),
        elect(conn, me, Some("x")).unwrap_err(),
        is_leader(conn, me, Some("x")).unwrap_err(),
        list_candidates(conn, Some("x")).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ElectionError::Schema { .. }), "{error}");
        assert!(
            error.to_string().contains("migrate") && !error.is_retryable(),
            "{error}"
        );
    }
    fresh.election();
    Election::builder(&fresh.url)
        .migrate(false)
        .build()
        .unwrap();
}

const OLDER: &str = "
    CREATE TABLE gemstone_election_candidate (
        ns VARCHAR(255) NOT NULL, candidate_id VARCHAR(36) NOT NULL,
        last_heartbeat_at TIMESTAMP_TYPE NOT NULL, expires_at TIMESTAMP_TYPE NOT NULL,
        PRIMARY KEY (ns, candidate_id));
    CREATE TABLE gemstone_election_leader (
        ns VARCHAR(255) NOT NULL, leader_id VARCHAR(36), lease_expires_at TIMESTAMP_TYPE NULL,
        updated_at TIMESTAMP_TYPE NOT NULL, PRIMARY KEY (ns));";

/// The tables as the Python package makes them, with a lease that is held.
fn make_older<C: Database>(conn: &mut C, holder: Uuid) {
    let timestamp = match C::LEVELS.len() {
        3 => "TIMESTAMP WITH TIME ZONE",
        _ => "DATETIME",
    };
    conn.run(&OLDER.replace("TIMESTAMP_TYPE", timestamp));
    let (now, end) = (C::instant(0), C::instant(60));
    conn.run(&format!(
        "INSERT INTO gemstone_election_leader VALUES ('x', '{holder}', {end}, {now})"
    ));
}

fn tables_of_an_older_version_are_told_and_brought_up_to_date<C: Database>() {
    let fresh = Fresh::without_tables::<C>();
    let conn = &mut fresh.connect::<C>();
    let (holder, me) = (Uuid::new_v4(), Uuid::new_v4());
    make_older(conn, holder);
    let errors = [
        Election::builder(&fresh.url)
            .migrate(false)
            .build()
            .unwrap_err(),
        elect(conn, me, Some("x")).unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, ElectionError::Schema { .. }), "{error}");
        assert!(error.to_string().contains("migrate"), "{error}");
    }
    election::migrate(conn).unwrap();
    // A lease that lives is not touched by it.
    assert_eq!(elect(conn, me, Some("x")).unwrap(), holder);
    assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 0);
    conn.lapse("x");
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 1);
    assert_eq!(elect(conn, me, Some("X")).unwrap(), me);
    assert_eq!(elect(conn, holder, Some("x")).unwrap(), me);
}

fn migrating_again_changes_nothing<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    elect(conn, Uuid::new_v4(), Some("x")).unwrap();
    let before = conn.leader_bytes("x");
    for _ in 0..3 {
        election::migrate(conn).unwrap();
    }
    assert_eq!(conn.leader_bytes("x"), before);
}

fn a_broken_first_migration_is_taken_up_again<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    if C::LEVELS.len() == 4 {
        // MySQL keeps what a broken migration has done so far: the term column, but no history.
        conn.run("DROP TABLE gemstone_election_tenure");
        election::migrate(conn).unwrap();
        assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 1);
    }
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
}

/// An application that runs the published migrations among its own gets the same tables.
macro_rules! beside_the_applications_own {
    ($name:ident, $Connection:ty, $migrations:expr, $describe:expr) => {
        #[test]
        fn $name() {
            use diesel_migrations::MigrationHarness;
            let ours = Fresh::new::<$Connection>();
            let theirs = Fresh::without_tables::<$Connection>();
            let conn = &mut theirs.connect::<$Connection>();
            conn.run_pending_migrations($migrations)
                .expect("migrations");
            assert_eq!(
                conn.text($describe),
                ours.connect::<$Connection>().text($describe)
            );
            // And then this crate finds nothing to do, not even its own bookkeeping.
            election::migrate(conn).unwrap();
            Election::builder(&theirs.url)
                .migrate(false)
                .build()
                .unwrap();
            // The other way round: the application comes second.
            let conn = &mut ours.connect::<$Connection>();
            let me = Uuid::new_v4();
            elect(conn, me, None).unwrap();
            if !stringify!($Connection).contains("Sqlite") {
                conn.run_pending_migrations($migrations)
                    .expect("migrations");
                assert!(is_leader(conn, me, None).unwrap());
            }
        }
    };
}

#[cfg(feature = "postgres")]
beside_the_applications_own!(
    beside_the_applications_own_on_postgres,
    diesel::pg::PgConnection,
    election::POSTGRES_MIGRATIONS,
    "SELECT string_agg(concat_ws(' ', table_name, column_name, data_type, is_nullable,
                                 column_default, character_maximum_length),
                       ';' ORDER BY table_name, column_name) AS value
     FROM information_schema.columns WHERE table_name LIKE 'gemstone%'"
);
#[cfg(feature = "mysql")]
beside_the_applications_own!(
    beside_the_applications_own_on_mariadb,
    diesel::mysql::MysqlConnection,
    election::MYSQL_MIGRATIONS,
    "SELECT GROUP_CONCAT(CONCAT_WS(' ', table_name, column_name, column_type, is_nullable,
                                   collation_name) ORDER BY table_name, column_name) AS value
     FROM information_schema.columns
     WHERE table_schema = DATABASE() AND table_name LIKE 'gemstone%'"
);
#[cfg(feature = "sqlite")]
beside_the_applications_own!(
    beside_the_applications_own_on_sqlite,
    diesel::sqlite::SqliteConnection,
    election::SQLITE_MIGRATIONS,
    "SELECT group_concat(sql, ';') AS value FROM
     (SELECT sql FROM sqlite_master WHERE name LIKE 'gemstone%' ORDER BY name)"
);

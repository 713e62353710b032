//! Time is the database's, in whatever zone a session is and whatever a client's clock says.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, elect, is_leader, leader, list_candidates};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::support::child;

on_every_database![
    a_lease_taken_late_in_a_transaction_lasts_from_then,
    sessions_in_any_two_time_zones_agree,
    a_lease_of_fractions_of_a_second_ends_when_it_should,
    nobody_judges_by_its_own_expire_setting,
];

/// F2
fn a_lease_taken_late_in_a_transaction_lasts_from_then<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    conn.transaction(|conn| {
        conn.number("SELECT count(*) AS value FROM gemstone_election_leader");
        thread::sleep(Duration::from_secs(2));
        elect(conn, me, Some("x"))
    })
    .unwrap();
    let found = leader(conn, Some("x")).unwrap().unwrap();
    assert!(
        found.remaining > Duration::from_secs(59),
        "{:?}",
        found.remaining
    );
}

/// F5
fn sessions_in_any_two_time_zones_agree<C: Database>() {
    let zones = ["+05:00", "-11:30", "+00:00"];
    let fresh = Fresh::new::<C>();
    let mut sessions: Vec<C> = zones
        .iter()
        .map(|zone| {
            let mut conn = fresh.connect::<C>();
            let _ = conn.batch_execute(&format!("SET time_zone = '{zone}'"));
            let _ = conn.batch_execute(&format!("SET TIME ZONE INTERVAL '{zone}' HOUR TO MINUTE"));
            conn
        })
        .collect();
    for writer in 0..sessions.len() {
        for reader in 0..sessions.len() {
            let ns = format!("{writer} {reader}");
            let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
            assert_eq!(elect(&mut sessions[writer], a, Some(&ns)).unwrap(), a);
            let conn = &mut sessions[reader];
            assert_eq!(elect(conn, b, Some(&ns)).unwrap(), a);
            assert!(is_leader(conn, a, Some(&ns)).unwrap());
            assert_eq!(list_candidates(conn, Some(&ns)).unwrap().len(), 2);
            let left = leader(conn, Some(&ns)).unwrap().unwrap().remaining;
            assert!(
                left > Duration::from_secs(50) && left <= Duration::from_secs(60),
                "{left:?}"
            );
        }
    }
}

/// F6
fn a_lease_of_fractions_of_a_second_ends_when_it_should<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(1));
    let namespaces: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    let me = Uuid::new_v4();
    for ns in &namespaces {
        election.elect(me, ns.as_str()).unwrap();
        thread::sleep(Duration::from_micros(u64::from(me.as_bytes()[0]) * 37));
        let row = election.leader_row(ns.as_str()).unwrap().unwrap();
        let life = row.lease_expires_at.unwrap() - row.updated_at;
        assert!((999..=1001).contains(&life.num_milliseconds()), "{life}");
    }
    // And by the clock: it is held just before its end and free just after.
    for phase in [0, 130, 570, 910] {
        let ns = format!("phase {phase}");
        thread::sleep(Duration::from_millis(phase));
        let before = Instant::now();
        election.elect(me, ns.as_str()).unwrap();
        let after = Instant::now();
        let mut held = before;
        while election.is_leader(me, ns.as_str()).unwrap() {
            held = Instant::now();
            assert!(
                before.elapsed() < Duration::from_secs(3),
                "the lease does not end"
            );
        }
        let free = Instant::now();
        assert!(
            free - before >= Duration::from_millis(995),
            "free after {:?}",
            free - before
        );
        assert!(
            held - after <= Duration::from_millis(1050),
            "held for {:?}",
            held - after
        );
    }
    let shapes = fresh.connect::<C>().number(
        "SELECT count(DISTINCT length(cast(lease_expires_at as char(40)))) AS value
         FROM gemstone_election_leader",
    );
    assert!(
        C::HOLD.contains("FOR UPDATE") || shapes == 1,
        "{shapes} shapes of text"
    );
}

fn nobody_judges_by_its_own_expire_setting<C: Database>() {
    let fresh = Fresh::new::<C>();
    let long = fresh.election_with(Duration::from_secs(60));
    let short = fresh.election_with(Duration::from_millis(100));
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    long.elect(a, "x").unwrap();
    thread::sleep(Duration::from_millis(300));
    assert_eq!(short.elect(b, "x").unwrap(), a);
    assert!(short.is_leader(a, "x").unwrap());
}

/// F1. SQLite's clock is the machine's own, so a process with another clock is another machine,
/// which cannot share the file.
#[cfg(feature = "postgres")]
#[test]
fn a_process_with_a_wrong_clock_changes_nothing_on_postgres() {
    a_process_with_a_wrong_clock_changes_nothing::<diesel::pg::PgConnection>();
}

#[cfg(feature = "mysql")]
#[test]
fn a_process_with_a_wrong_clock_changes_nothing_on_mariadb() {
    a_process_with_a_wrong_clock_changes_nothing::<diesel::mysql::MysqlConnection>();
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
fn a_process_with_a_wrong_clock_changes_nothing<C: Database>() {
    use crate::support::child::Role;
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    for skew in ["-180s", "+180s"] {
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        election.elect(a, skew).unwrap();
        let skewed = |ns: &str| {
            let this = child::in_child("time::role_elects_once");
            let mut command = std::process::Command::new("faketime");
            command
                .args(["-f", skew])
                .arg(this.get_program())
                .args(this.get_args());
            command.envs(
                this.get_envs()
                    .filter_map(|(name, value)| Some((name, value?))),
            );
            command.envs([
                ("URL", &fresh.url),
                ("ID", &b.to_string()),
                ("NS", &ns.to_owned()),
            ]);
            let mut role = Role::spawn(&mut command);
            let leader = role.line(Duration::from_secs(30));
            // Killed, it would leave its shared memory to the next process of its number.
            role.wait(Duration::from_secs(30));
            leader
        };
        assert_eq!(skewed(skew), a.to_string(), "a live lease is not taken");
        let vacant = format!("vacant {skew}");
        assert_eq!(skewed(&vacant), b.to_string());
        let left = election.leader(vacant.as_str()).unwrap().unwrap().remaining;
        assert!(
            left > Duration::from_secs(40) && left <= Duration::from_secs(60),
            "{left:?}"
        );
    }
}

#[test]
fn role_elects_once() {
    let Some(parent) = child::role("time::role_elects_once") else {
        return;
    };
    let var = |name| std::env::var(name).expect(name);
    let election = Election::connect(&var("URL")).expect("connect");
    let id = var("ID").parse().expect("an id");
    let leader = election.elect(id, var("NS").as_str()).expect("elect");
    parent.say(leader);
}

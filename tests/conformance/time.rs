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

/// S2, in whatever plan the server makes of a statement.
#[cfg(feature = "postgres")]
mod the_clock_is_read_with_the_row_locked {
    use diesel::pg::PgConnection;
    use leasehold::election::LeaderGuard;

    use super::*;
    use crate::support::wait_until;

    const PLANS: [&str; 3] = ["enable_seqscan", "enable_tidscan", "enable_nestloop"];

    /// As long as a session does not hold a lease that is over, its clock tells the time of an hour
    /// ago, when the lease was not.
    const CLOCK: &str = "
        CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql COST 1 AS $$
        DECLARE
            this xid := pg_current_xact_id_if_assigned()::xid;
        BEGIN
            IF EXISTS (SELECT FROM gemstone_election_leader
                       WHERE lease_expires_at < pg_catalog.clock_timestamp() AND ns <> 'beside it'
                         AND xmax IS DISTINCT FROM this AND xmin IS DISTINCT FROM this) THEN
                RETURN pg_catalog.clock_timestamp() - interval '1 hour';
            END IF;
            RETURN pg_catalog.clock_timestamp();
        END $$";

    /// A database with that clock, and its owner's connection, which has the true one.
    fn without(plan: &str) -> (Fresh, PgConnection) {
        let fresh = Fresh::new::<PgConnection>();
        let database = fresh.url.rsplit('/').next().expect("a name");
        let mut owner = fresh.connect::<PgConnection>();
        owner.run(CLOCK);
        for setting in ["search_path = public, pg_catalog", &format!("{plan} = off")] {
            owner.run(&format!("ALTER DATABASE {database} SET {setting}"));
        }
        (fresh, owner)
    }

    #[test]
    fn by_elect() {
        for plan in PLANS {
            let (fresh, mut owner) = without(plan);
            let election = fresh.election();
            let conn = &mut fresh.connect::<PgConnection>();
            let me = Uuid::new_v4();
            for (ns, of_the_handle) in [("by a function", false), ("by a handle", true)] {
                for term in 1..=3 {
                    // A handle renews at once, by what it was told the time before.
                    for _ in 0..2 {
                        let leader = match of_the_handle {
                            true => election.elect(me, ns),
                            false => elect(conn, me, Some(ns)),
                        };
                        assert_eq!(leader.unwrap(), me);
                        let row = election.leader_row(ns).unwrap().unwrap();
                        assert_eq!(row.term.get(), term, "{ns}, without {plan}");
                    }
                    owner.lapse(ns);
                    let behind = "SELECT (clock_timestamp() < now())::int::bigint AS value";
                    assert_eq!(conn.number(behind), 1);
                }
                owner.run("DELETE FROM gemstone_election_leader");
            }
        }
    }

    /// Guards of one handle beat together, and one alone by a statement of its own.
    #[test]
    fn by_a_guard() {
        for plan in PLANS {
            let (fresh, mut owner) = without(plan);
            let election = fresh.election_with(Duration::from_secs(2));
            for namespaces in [&["x"][..], &["x", "beside it"]] {
                let spawn = |ns: &&str| LeaderGuard::spawn(&election, Uuid::new_v4(), ns).unwrap();
                let guards: Vec<LeaderGuard> = namespaces.iter().map(spawn).collect();
                let leads = |guard: &LeaderGuard| guard.wait_until_leader(Duration::from_secs(20));
                let tenures: Vec<_> = guards.iter().map(leads).collect();
                let led = tenures[0].as_ref().expect("x is led").term();
                owner.lapse("x");
                let over = owner.leader_bytes("x");
                wait_until(Duration::from_secs(20), "a change of the lease", || {
                    owner.leader_bytes("x") != over
                });
                let term = election.leader_row("x").unwrap().unwrap().term;
                assert_eq!(term.get(), led.get() + 1, "{namespaces:?}, without {plan}");
                drop(guards);
                owner.run("DELETE FROM gemstone_election_leader");
            }
        }
    }
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

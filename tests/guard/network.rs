//! The network and the servers fail.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, Event, LeaderGuard, Lost};
use uuid::Uuid;

use crate::support::{MariaDb, Postgres, Proxy, wait_until};
use crate::{PATIENCE, must_lead, next_loss};

const LEASE: Duration = Duration::from_secs(2);

fn through_proxy(url: &str, lease: Duration) -> (Proxy, Election) {
    let (proxy, url) = Proxy::in_front_of(url);
    let election = Election::builder(&url).expire(lease).build().unwrap();
    (proxy, election)
}

fn servers() -> [String; 2] {
    [
        Postgres::shared().fresh_database(),
        MariaDb::shared().fresh_database(),
    ]
}

/// F4: it counts from when the question was sent.
#[test]
fn a_late_reply_extends_nothing_beyond_its_question() {
    for url in servers() {
        let lease = Duration::from_secs(5);
        let (proxy, election) = through_proxy(&url, lease);
        let direct = Election::connect(&url).unwrap();
        let builder = LeaderGuard::builder(&election, Uuid::new_v4(), "x");
        let guard = builder
            .attempt_timeout(Duration::from_millis(2700))
            .spawn()
            .unwrap();
        must_lead(&guard);
        proxy.delay_replies(Duration::from_millis(2500));
        let until = Instant::now() + 2 * lease;
        while Instant::now() < until {
            // The stored lease always outlives what the guard believes.
            if let Some(tenure) = guard.tenure() {
                let believed = tenure.remaining();
                if let Some(stored) = direct.leader("x").unwrap()
                    && stored.term == tenure.term()
                {
                    assert!(believed < stored.remaining + Duration::from_millis(400));
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// F20, F42
#[test]
fn a_dark_network_ends_leadership_in_time_and_its_healing_brings_it_back() {
    for url in servers() {
        let lease = Duration::from_secs(3);
        let (proxy, election) = through_proxy(&url, lease);
        let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
        let tenure = must_lead(&guard);
        let events = guard.events();
        proxy.go_dark();
        let dark = Instant::now();
        assert_eq!(next_loss(&events), Lost::Unreachable);
        assert!(dark.elapsed() <= lease, "{:?}", dark.elapsed());
        assert!(!guard.is_leader() && !tenure.is_current());
        while dark.elapsed() < 4 * lease {
            assert!(!guard.is_leader());
            assert!(threads() <= 40, "abandoned threads pile up: {}", threads());
            thread::sleep(Duration::from_millis(10));
        }
        proxy.heal();
        let healed = Instant::now();
        let again = must_lead(&guard);
        assert!(
            healed.elapsed() <= lease + Duration::from_secs(2),
            "{:?}",
            healed.elapsed()
        );
        assert!(again.term() > tenure.term() && !tenure.is_current());
    }
}

fn threads() -> usize {
    let named = |task: std::io::Result<std::fs::DirEntry>| {
        let name = std::fs::read_to_string(task.ok()?.path().join("comm")).ok()?;
        name.starts_with("leasehold-beat").then_some(())
    };
    std::fs::read_dir("/proc/self/task")
        .unwrap()
        .filter_map(named)
        .count()
}

/// F20: drop returns, whatever the network does.
#[test]
fn a_guard_is_dropped_in_two_seconds_while_the_network_is_dark() {
    for url in servers() {
        let (proxy, election) = through_proxy(&url, Duration::from_secs(20));
        let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
        must_lead(&guard);
        proxy.go_dark();
        let began = Instant::now();
        drop(guard);
        assert!(
            began.elapsed() < Duration::from_secs(2),
            "{:?}",
            began.elapsed()
        );
    }
}

/// F22
#[test]
fn one_failed_beat_changes_nothing_and_a_dead_database_ends_it_in_time() {
    for url in servers() {
        let (proxy, election) = through_proxy(&url, LEASE);
        let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
        must_lead(&guard);
        let events = guard.events();
        proxy.cut();
        wait_until(PATIENCE, "the failure is told", || {
            events
                .try_iter()
                .any(|event| matches!(event, Event::Unreachable { .. }))
        });
        assert!(guard.is_leader());
        proxy.heal();
        thread::sleep(LEASE);
        assert!(guard.is_leader());
        assert_eq!(guard.tenure().unwrap().term().get(), 1);

        proxy.cut();
        let cut = Instant::now();
        assert_eq!(next_loss(&events), Lost::Unreachable);
        assert!(
            cut.elapsed() >= LEASE / 2 && cut.elapsed() <= LEASE,
            "{:?}",
            cut.elapsed()
        );
        proxy.heal();
        must_lead(&guard);
    }
}

/// F27
#[test]
fn a_restarted_server_and_killed_sessions_find_one_leader_again() {
    fn check(url: &str, disturb: &[&dyn Fn()]) {
        let elections = [(); 3].map(|()| Election::builder(url).expire(LEASE).build().unwrap());
        let guards: Vec<LeaderGuard> = elections
            .iter()
            .map(|election| LeaderGuard::spawn(election, Uuid::new_v4(), "x").unwrap())
            .collect();
        let leading = || guards.iter().filter(|guard| guard.is_leader()).count();
        for disturb in disturb {
            wait_until(PATIENCE, "somebody leads", || leading() == 1);
            disturb();
            let after = Instant::now();
            wait_until(
                LEASE + Duration::from_secs(2),
                "somebody leads again",
                || {
                    assert!(leading() < 2);
                    leading() == 1
                        && elections[0]
                            .leader("x")
                            .is_ok_and(|leader| leader.is_some())
                },
            );
            while after.elapsed() < LEASE + Duration::from_secs(2) {
                assert!(leading() < 2);
            }
            assert_eq!(leading(), 1);
        }
    }
    let postgres = Postgres::start();
    let url = postgres.fresh_database();
    check(
        &url,
        &[&|| postgres.restart(), &|| {
            postgres.terminate_all_sessions();
        }],
    );
    let mariadb = MariaDb::start();
    let url = mariadb.fresh_database();
    check(
        &url,
        &[&|| mariadb.restart(), &|| {
            mariadb.terminate_all_sessions();
        }],
    );
}

/// F23, with replies that come late
#[test]
fn a_lease_that_was_dropped_is_free_at_once_even_when_replies_are_late() {
    for url in servers() {
        let (proxy, election) = through_proxy(&url, Duration::from_secs(20));
        let direct = Election::connect(&url).unwrap();
        proxy.delay_replies(Duration::from_millis(20));
        for round in 0..15 {
            let guard = LeaderGuard::builder(&election, Uuid::new_v4(), "x")
                .beat(Duration::from_millis(2))
                .spawn()
                .unwrap();
            must_lead(&guard);
            guard.resign().unwrap();
            let next = Uuid::new_v4();
            assert_eq!(direct.elect(next, "x").unwrap(), next, "round {round}");
            direct.unregister_candidate(next, "x").unwrap();
        }
    }
}

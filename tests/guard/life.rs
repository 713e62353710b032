//! From the first breath to the last.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{ElectionError, LeaderGuard};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::{PATIENCE, must_lead};

on_every_database![
    guards_that_come_and_go_quickly_leave_the_lease_free,
    a_guard_may_be_dropped_while_another_works,
    slow_and_vanished_subscribers_hurt_nobody,
    a_guard_outlives_the_handle_it_was_made_from,
    many_guards_share_one_thread,
    guards_that_beat_without_pause_leave_others_their_turn,
    a_resignation_that_the_database_does_not_confirm_is_told,
    an_election_with_guards_removes_what_ended_long_ago,
];

/// F23
fn guards_that_come_and_go_quickly_leave_the_lease_free<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(60));
    for round in 0..500 {
        let guard = LeaderGuard::builder(&election, Uuid::new_v4(), "x")
            .beat(Duration::from_millis(2))
            .spawn()
            .unwrap();
        assert_eq!(must_lead(&guard).term().get(), 2 * round + 1);
        drop(guard);
        let next = Uuid::new_v4();
        assert_eq!(election.elect(next, "x").unwrap(), next, "round {round}");
        election.unregister_candidate(next, "x").unwrap();
    }
    // Dropped before it ever led.
    for _ in 0..100 {
        drop(LeaderGuard::spawn(&election, Uuid::new_v4(), "y").unwrap());
    }
    let next = Uuid::new_v4();
    assert_eq!(election.elect(next, "y").unwrap(), next);
    assert_eq!(election.list_candidates("y").unwrap(), [next]);
}

/// Also in namespaces that nobody uses any more.
fn an_election_with_guards_removes_what_ended_long_ago<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    conn.leave_registrations("y", 60, -2 * 86_400);
    let election = fresh.election();
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    let left = "SELECT count(*) AS value FROM gemstone_election_candidate WHERE ns = 'y'";
    crate::support::wait_until(PATIENCE, "they are removed", || conn.number(left) == 0);
}

fn a_guard_may_be_dropped_while_another_works<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(5));
    let outer = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    let inner = Mutex::new(Some(
        LeaderGuard::spawn(&election, Uuid::new_v4(), "y").unwrap(),
    ));
    must_lead(&outer);
    outer.lead(|_| drop(inner.lock().unwrap().take())).unwrap();
    let shared = Arc::new(outer);
    let also = shared.clone();
    let events = shared.events();
    let listener = thread::spawn(move || {
        events.recv_timeout(PATIENCE).expect("the tenure");
        drop(also);
    });
    listener.join().unwrap();
    drop(shared);
    assert!(election.leader("x").unwrap().is_none());
}

fn slow_and_vanished_subscribers_hurt_nobody<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(5));
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    let slow = guard.events();
    drop(guard.events());
    thread::scope(|scope| {
        let panics = guard.events();
        let panicked = scope.spawn(move || {
            panics.recv().expect("the tenure");
            panic!("in a subscriber");
        });
        assert!(panicked.join().is_err());
    });
    election.unregister_candidate(Uuid::new_v4(), "x").unwrap();
    assert!(guard.is_leader());
    guard.resign().unwrap();
    assert!(
        slow.iter().count() >= 2,
        "what happened is still there to be read"
    );
}

fn a_guard_outlives_the_handle_it_was_made_from<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(1));
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    drop(election);
    must_lead(&guard);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert!(guard.is_leader());
        thread::sleep(Duration::from_millis(2));
    }
}

fn many_guards_share_one_thread<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(60));
    let guards: Vec<LeaderGuard> = (0..200)
        .map(|n| LeaderGuard::spawn(&election, Uuid::new_v4(), &n.to_string()).unwrap())
        .collect();
    guards.iter().for_each(|guard| drop(must_lead(guard)));
    assert!(guards.iter().all(LeaderGuard::is_leader));
    let terms = guards
        .iter()
        .map(|guard| guard.tenure().unwrap().term().get());
    assert!(terms.into_iter().all(|term| term == 1));
    thread::scope(|scope| {
        for part in guards.chunks(50) {
            scope.spawn(move || part.iter().for_each(|guard| guard.step_down().unwrap()));
        }
    });
    let left = (0..200).filter_map(|n: i32| election.leader(n.to_string().as_str()).unwrap());
    assert_eq!(left.count(), 0);
}

fn guards_that_beat_without_pause_leave_others_their_turn<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(60));
    let busy: Vec<LeaderGuard> = (0..20)
        .map(|n| {
            let ns = format!("busy {n}");
            let builder = LeaderGuard::builder(&election, Uuid::new_v4(), &ns);
            builder.beat(Duration::from_millis(1)).spawn().unwrap()
        })
        .collect();
    busy.iter().for_each(|guard| drop(must_lead(guard)));
    let calm = LeaderGuard::spawn(&election, Uuid::new_v4(), "calm").unwrap();
    must_lead(&calm);
    calm.resign().unwrap();
    assert!(busy.iter().all(LeaderGuard::is_leader));
}

fn a_resignation_that_the_database_does_not_confirm_is_told<C: Database>() {
    let fresh = Fresh::new::<C>();
    let lease = Duration::from_secs(2);
    let guard = LeaderGuard::spawn(&fresh.election_with(lease), Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    let mut holder = fresh.connect::<C>();
    holder.hold_row("x");
    let began = Instant::now();
    let error = guard.resign().unwrap_err();
    assert!(
        matches!(error, ElectionError::NotReleased { .. }),
        "{error}"
    );
    assert!(began.elapsed() < 4 * lease, "{:?}", began.elapsed());
    holder.run("ROLLBACK");
}

#[cfg(feature = "sqlite")]
#[test]
fn two_thousand_guards_cost_one_thread() {
    use crate::support::child::{self, Role};
    // It outlives the process, whose heartbeat writes to the last.
    let dir = crate::support::Directory::new();
    let url = format!("sqlite:{}", dir.path().join("x.db").display());
    let role = Role::spawn(child::in_child("life::role_counts_its_threads").env("URL", url));
    assert_eq!(role.line(4 * PATIENCE), "1");
}

#[cfg(feature = "sqlite")]
#[test]
fn role_counts_its_threads() {
    use crate::support::child;
    let Some(parent) = child::role("life::role_counts_its_threads") else {
        return;
    };
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let url = std::env::var("URL").unwrap();
    let election = leasehold::election::Election::builder(&url)
        .expire(Duration::from_secs(30))
        .build()
        .unwrap();
    let before = threads();
    let guards: Vec<LeaderGuard> = (0..2000)
        .map(|n| LeaderGuard::spawn(&election, Uuid::new_v4(), &n.to_string()).unwrap())
        .collect();
    guards.iter().for_each(|guard| drop(must_lead(guard)));
    assert!(guards.iter().all(LeaderGuard::is_leader));
    parent.say(threads() - before);
    // The process ends without giving the leases back: their time runs out.
    std::mem::forget(guards);
}

/// A process that cannot start a thread takes no lease.
#[cfg(feature = "sqlite")]
#[test]
fn without_a_thread_no_lease_is_taken() {
    use crate::support::child::{self, Role};
    let dir = crate::support::Directory::new();
    let url = format!("sqlite:{}", dir.path().join("x.db").display());
    let election = leasehold::election::Election::connect(&url).unwrap();
    let mut command = child::in_child("life::role_has_no_threads_left");
    let role = Role::spawn(command.env("URL", &url).env("RUST_MIN_STACK", "536870912"));
    assert_eq!(role.line(PATIENCE), "refused");
    assert!(election.leader("x").unwrap().is_none());
    assert!(election.list_candidates("x").unwrap().is_empty());
}

#[cfg(feature = "sqlite")]
#[test]
fn role_has_no_threads_left() {
    use crate::support::child;
    let Some(parent) = child::role("life::role_has_no_threads_left") else {
        return;
    };
    let election = leasehold::election::Election::connect(&std::env::var("URL").unwrap()).unwrap();
    // The address space that is left serves everything but a further thread with its stack of 512 MiB.
    use rustix::process::{Resource, Rlimit, setrlimit};
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let size = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: u64 = size
        .and_then(|size| size.trim().strip_suffix(" kB")?.parse().ok())
        .expect("the size of this process");
    let limit = Some(kib * 1024 + (256 << 20));
    let limit = Rlimit {
        current: limit,
        maximum: limit,
    };
    setrlimit(Resource::As, limit).unwrap();
    match LeaderGuard::spawn(&election, Uuid::new_v4(), "x") {
        Err(ElectionError::Thread { .. }) => parent.say("refused"),
        other => parent.say(format!("{other:?}")),
    }
    parent.wait_for_the_end();
}

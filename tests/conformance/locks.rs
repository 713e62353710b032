//! What happens while another session is in the way.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::InstrumentationEvent;
use leasehold::election::{
    ElectionError, elect, heartbeat, is_leader, leader, list_candidates, unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    candidates_that_race_for_a_new_namespace_elect_one,
    callers_that_share_one_candidate_id_all_get_it,
    a_row_lock_that_outlasts_the_call_is_a_retryable_error_and_no_answer,
    a_wait_for_the_row_lock_never_ends_with_a_lease_that_is_over,
    a_locked_namespace_delays_no_other,
    a_follower_and_a_reader_do_not_wait_for_the_row_lock,
    an_unregister_that_is_overtaken_leaves_the_new_leader_alone,
    is_leader_compares_when_it_reads,
    many_sessions_and_a_slow_writer_bring_no_error_out,
];

const RACERS: usize = 32;

/// 200, or what the environment says.
fn rounds() -> usize {
    let set = std::env::var("LEASEHOLD_TEST_ROUNDS").ok();
    set.map_or(200, |rounds| rounds.parse().expect("a number of rounds"))
}

/// F13
fn candidates_that_race_for_a_new_namespace_elect_one<C: Database>() {
    for level in C::LEVELS {
        race::<C>(level, |_| Uuid::new_v4());
    }
}

/// F40
fn callers_that_share_one_candidate_id_all_get_it<C: Database>() {
    let shared = Uuid::new_v4();
    race::<C>(C::LEVELS[C::LEVELS.len() / 2], move |_| shared);
}

fn race<C: Database>(level: &'static str, id_of: impl Fn(usize) -> Uuid) {
    let fresh = Fresh::new::<C>();
    // Opened once by the handle, an SQLite file keeps its faster journal.
    let election = fresh.election();
    let gate = Arc::new(Barrier::new(RACERS));
    let (told, answers) = mpsc::channel();
    let rounds = rounds();
    thread::scope(|scope| {
        for racer in 0..RACERS {
            let (gate, told, me) = (gate.clone(), told.clone(), id_of(racer));
            let mut conn = fresh.connect::<C>();
            scope.spawn(move || {
                conn.run(level);
                for round in 0..rounds {
                    gate.wait();
                    let answer = elect(&mut conn, me, Some(&round.to_string()));
                    told.send((round, me, answer)).expect("somebody listens");
                }
            });
        }
    });
    drop(told);
    let mut leaders = vec![None; rounds];
    let mut candidates = vec![std::collections::BTreeSet::new(); rounds];
    for (round, me, answer) in answers {
        let leader = answer.unwrap_or_else(|error| panic!("round {round}, {level}: {error}"));
        assert_eq!(
            *leaders[round].get_or_insert(leader),
            leader,
            "two leaders in round {round}"
        );
        candidates[round].insert(me);
    }
    for (round, leader_told) in leaders.into_iter().enumerate() {
        let ns = round.to_string();
        let stored = election.leader_row(ns.as_str()).unwrap().unwrap();
        assert_eq!((stored.leader_id, stored.term.get()), (leader_told, 1));
        let rows = election.candidates(ns.as_str()).unwrap();
        let registered = rows.iter().map(|row| &row.candidate_id);
        assert!(
            registered.eq(&candidates[round]),
            "everyone is registered once"
        );
    }
}

/// Holds the leader row of `ns` locked from another session until the closure ends.
fn while_locked<C: Database, T>(fresh: &Fresh, ns: &str, work: impl FnOnce(&mut C) -> T) -> T {
    let mut holder = fresh.connect::<C>();
    holder.hold_row(ns);
    let result = work(&mut holder);
    let _ = holder.batch_execute("ROLLBACK");
    result
}

/// F39, F16 as far as the functions go
fn a_row_lock_that_outlasts_the_call_is_a_retryable_error_and_no_answer<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(2));
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    election.elect(a, "x").unwrap();
    fresh.connect::<C>().lapse("x");
    let before = fresh.connect::<C>().leader_bytes("x");
    while_locked(&fresh, "x", |_: &mut C| {
        thread::scope(|scope| {
            for me in [a, b] {
                let election = &election;
                scope.spawn(move || {
                    let began = Instant::now();
                    let error = election.elect(me, "x").unwrap_err();
                    assert!(error.is_retryable(), "{error}");
                    assert!(error.to_string().contains("\"x\""), "{error}");
                    assert!(
                        began.elapsed() < Duration::from_secs(9),
                        "{:?}",
                        began.elapsed()
                    );
                });
            }
        });
    });
    assert_eq!(fresh.connect::<C>().leader_bytes("x"), before);
    assert_eq!(election.elect(b, "x").unwrap(), b);
}

/// F3
fn a_wait_for_the_row_lock_never_ends_with_a_lease_that_is_over<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(1));
    let me = Uuid::new_v4();
    let mut looker = fresh.connect::<C>();
    for _ in 0..3 {
        election.elect(me, "x").unwrap();
        let mut holder = fresh.connect::<C>();
        holder.hold_row("x");
        let waiting = {
            let election = election.clone();
            thread::spawn(move || election.elect(me, "x"))
        };
        thread::sleep(Duration::from_millis(1500));
        holder.run("COMMIT");
        if let Ok(told) = waiting.join().expect("no panic") {
            let found = leader(&mut looker, Some("x"))
                .unwrap()
                .expect("a lease that has not ended");
            assert_eq!((told, found.candidate_id), (me, me));
            assert!(
                found.remaining > Duration::from_millis(300),
                "{:?}",
                found.remaining
            );
        }
    }
}

/// F16, as far as the functions go. SQLite has one lock for everything.
fn a_locked_namespace_delays_no_other<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    elect(conn, me, Some("y")).unwrap();
    if C::HOLD.starts_with("BEGIN IMMEDIATE") {
        return;
    }
    while_locked(&fresh, "x", |_: &mut C| {
        let began = Instant::now();
        for _ in 0..20 {
            assert_eq!(elect(conn, me, Some("y")).unwrap(), me);
        }
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    });
}

fn a_follower_and_a_reader_do_not_wait_for_the_row_lock<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    elect(conn, a, Some("x")).unwrap();
    elect(conn, b, Some("x")).unwrap();
    while_locked(&fresh, "x", |_: &mut C| {
        let began = Instant::now();
        assert_eq!(elect(conn, b, Some("x")).unwrap(), a);
        assert!(is_leader(conn, a, Some("x")).unwrap());
        assert_eq!(leader(conn, Some("x")).unwrap().unwrap().candidate_id, a);
        assert_eq!(list_candidates(conn, Some("x")).unwrap().len(), 2);
        assert!(
            began.elapsed() < Duration::from_secs(1),
            "{:?}",
            began.elapsed()
        );
    });
}

/// F37: the row changes hands between what unregister reads and what it writes.
fn an_unregister_that_is_overtaken_leaves_the_new_leader_alone<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (a, b, c) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    // Readers and a writer in one SQLite file need the write-ahead log.
    fresh.election();
    let mut other = fresh.connect::<C>();
    elect(&mut other, a, Some("x")).unwrap();

    let (has_read, read) = mpsc::channel();
    let mut slow = fresh.connect::<C>();
    slow.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::FinishQuery { .. } = event {
            let _ = has_read.send(());
        }
    });
    // The other session takes the lease over while unregister has read and not written.
    other.hold_row("x");
    let unregistering = thread::spawn(move || unregister_candidate(&mut slow, a, Some("x")));
    read.recv_timeout(Duration::from_secs(10))
        .expect("unregister reads");
    let end = C::instant(60);
    other.run(&format!(
        "UPDATE gemstone_election_leader SET leader_id = '{b}', lease_expires_at = {end}, term = 2"
    ));
    other.run("COMMIT");
    let before = other.leader_bytes("x");
    unregistering.join().expect("no panic").unwrap();
    assert_eq!(other.leader_bytes("x"), before);
    assert_eq!(elect(&mut other, c, Some("x")).unwrap(), b);
}

/// F38: the call is held up for longer than the lease just before it reads.
fn is_leader_compares_when_it_reads<C: Database>() {
    let fresh = Fresh::new::<C>();
    let me = Uuid::new_v4();
    let mut outside = fresh.connect::<C>();
    elect(&mut outside, me, Some("x")).unwrap();

    let (at_the_query, reached) = mpsc::channel();
    let (go_on, may_go_on) = mpsc::channel();
    let held_up = AtomicBool::new(false);
    let mut slow = fresh.connect::<C>();
    slow.set_instrumentation(move |event: InstrumentationEvent<'_>| {
        if let InstrumentationEvent::StartQuery { .. } = event
            && !held_up.swap(true, Ordering::Relaxed)
        {
            at_the_query.send(()).expect("somebody listens");
            may_go_on.recv().expect("somebody speaks");
        }
    });
    let asking = thread::spawn(move || is_leader(&mut slow, me, Some("x")));
    reached
        .recv_timeout(Duration::from_secs(10))
        .expect("is_leader asks");
    outside.lapse("x");
    go_on.send(()).expect("somebody listens");
    assert!(!asking.join().expect("no panic").unwrap());
}

/// F15, and the same on the other databases: connections that set no time-out of their own.
fn many_sessions_and_a_slow_writer_bring_no_error_out<C: Database>() {
    const SESSIONS: usize = 8;
    let fresh = Fresh::new::<C>();
    fresh.election();
    let over = AtomicBool::new(false);
    let turns = rounds() / 4;
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut conn = fresh.connect::<C>();
            conn.hold_row("x");
            while !over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(300));
                conn.run("COMMIT");
                thread::sleep(Duration::from_millis(50));
                while conn.batch_execute(&C::HOLD.replace("NS", "x")).is_err() {
                    let _ = conn.batch_execute("ROLLBACK");
                }
            }
            conn.run("COMMIT");
        });
        let workers: Vec<_> = (0..SESSIONS)
            .map(|_| {
                let mut conn = fresh.connect::<C>();
                scope.spawn(move || -> Result<(), ElectionError> {
                    let me = Uuid::new_v4();
                    for turn in 0..turns {
                        elect(&mut conn, me, Some("x"))?;
                        heartbeat(&mut conn, me, Some("x"))?;
                        if turn % 10 == 9 {
                            unregister_candidate(&mut conn, me, Some("x"))?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let results: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        over.store(true, Ordering::Relaxed);
        for result in results {
            result.expect("no panic").unwrap();
        }
    });
}

//! What a guard does while nothing is wrong.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{ElectionError, Event, LeaderGuard, Lost, elect};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::{PATIENCE, must_lead, next, next_loss};

on_every_database![
    a_guard_is_elected_and_keeps_its_term,
    a_second_guard_follows_and_takes_over_after_a_resignation,
    events_come_in_order_and_late_subscribers_hear_of_the_tenure,
    two_guards_with_one_id_never_lead_together,
    a_guard_does_not_take_what_a_call_with_its_id_holds,
    work_runs_only_under_leadership_and_sees_its_end,
    a_resignation_waits_for_the_work_and_not_for_ever,
    a_guard_that_leads_once_does_not_come_back,
    settings_without_slack_are_refused,
    a_lapsed_guard_leaves_its_successor_alone,
    guards_of_one_handle_are_not_mistaken_for_each_other,
];

const LEASE: Duration = Duration::from_secs(2);

fn a_guard_is_elected_and_keeps_its_term<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let me = Uuid::new_v4();
    let guard = LeaderGuard::spawn(&election, me, "x").unwrap();
    let tenure = must_lead(&guard);
    assert_eq!(tenure.term().get(), 1);
    assert!(tenure.remaining() > LEASE / 2 && tenure.remaining() < LEASE);
    let until = Instant::now() + 2 * LEASE;
    while Instant::now() < until {
        assert!(guard.is_leader() && tenure.is_current());
        thread::sleep(Duration::from_millis(1));
    }
    let stored = election.leader("x").unwrap().unwrap();
    assert_eq!((stored.candidate_id, stored.term), (me, tenure.term()));
    assert_eq!(election.list_candidates("x").unwrap(), [me]);
    guard.resign().unwrap();
    assert!(!tenure.is_current() && tenure.remaining().is_zero());
    assert_eq!(election.leader("x").unwrap(), None);
    assert!(election.list_candidates("x").unwrap().is_empty());
}

fn a_second_guard_follows_and_takes_over_after_a_resignation<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    let first = LeaderGuard::spawn(&election, a, "x").unwrap();
    must_lead(&first);
    // Another handle, as another process has it.
    let second = LeaderGuard::spawn(&fresh.election_with(LEASE), b, "x").unwrap();
    let events = second.events();
    let news = next(&events);
    assert!(
        matches!(news, Event::LeaderChanged { leader, term } if leader == a && term.get() == 1),
        "{news:?}"
    );
    assert!(!second.is_leader() && second.tenure().is_none());
    let mut listed = vec![a, b];
    listed.sort();
    assert_eq!(election.list_candidates("x").unwrap(), listed);
    let resigned = Instant::now();
    first.resign().unwrap();
    assert_eq!(must_lead(&second).term().get(), 2);
    // At most a beat, however full the machine is.
    assert!(resigned.elapsed() < LEASE, "{:?}", resigned.elapsed());
}

fn events_come_in_order_and_late_subscribers_hear_of_the_tenure<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let me = Uuid::new_v4();
    let guard = LeaderGuard::spawn(&election, me, "x").unwrap();
    let first = guard.events();
    assert!(matches!(next(&first), Event::Elected { term } if term.get() == 1));
    let late = guard.events();
    assert!(matches!(next(&late), Event::Elected { term } if term.get() == 1));
    drop(late);

    election.unregister_candidate(me, "x").unwrap();
    let events = [next(&first), next(&first)];
    assert!(
        matches!(events, [Event::Lost { term, cause: Lost::Resigned }, Event::Elected { term: new }] if term.get() == 1 && new.get() == 2),
        "{events:?}"
    );
    guard.step_down().unwrap();
    assert!(matches!(next(&first), Event::Lost { term, cause: Lost::Resigned } if term.get() == 2));
    assert!(
        first.recv_timeout(PATIENCE).is_err(),
        "nothing comes after the end"
    );
}

/// F8, in one process
fn two_guards_with_one_id_never_lead_together<C: Database>() {
    let fresh = Fresh::new::<C>();
    let lease = Duration::from_millis(600);
    let election = fresh.election_with(lease);
    let me = Uuid::new_v4();
    for round in 0..4 {
        let guards = [(); 2].map(|()| LeaderGuard::spawn(&election, me, "x").unwrap());
        let until = Instant::now() + 2 * lease;
        let mut led = 0;
        while Instant::now() < until {
            let leading = guards.iter().filter(|guard| guard.is_leader()).count();
            assert!(leading < 2, "round {round}");
            led += leading;
        }
        assert!(led > 0, "round {round}: somebody leads");
    }
}

/// S7
fn a_guard_does_not_take_what_a_call_with_its_id_holds<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let me = Uuid::new_v4();
    let began = Instant::now();
    election.elect(me, "x").unwrap();
    let guard = LeaderGuard::spawn(&election, me, "x").unwrap();
    let tenure = must_lead(&guard);
    assert!(
        began.elapsed() >= LEASE - Duration::from_millis(50),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(tenure.term().get(), 2);
}

fn work_runs_only_under_leadership_and_sees_its_end<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    election.elect(a, "x").unwrap();
    let guard = LeaderGuard::spawn(&election, b, "x").unwrap();
    let refused = guard
        .lead(|_| unreachable!("it does not lead"))
        .unwrap_err();
    assert!(
        matches!(refused, ElectionError::NotLeader { .. }),
        "{refused}"
    );
    let conn = &mut fresh.connect::<C>();
    let refused: Result<(), ElectionError> = guard.transaction(conn, |_| unreachable!());
    assert!(
        matches!(refused, Err(ElectionError::NotLeader { .. })),
        "{refused:?}"
    );

    must_lead(&guard);
    let seen = guard.lead(|tenure| {
        assert!(tenure.is_current());
        fresh.connect::<C>().lapse("x");
        elect(&mut fresh.connect::<C>(), a, Some("x")).unwrap();
        let until = Instant::now() + PATIENCE;
        while tenure.is_current() && Instant::now() < until {
            thread::sleep(Duration::from_millis(1));
        }
        !tenure.is_current()
    });
    assert!(seen.unwrap());
}

/// F25
fn a_resignation_waits_for_the_work_and_not_for_ever<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(3 * LEASE);
    for hangs in [false, true] {
        let ns = if hangs { "hangs" } else { "ends" };
        let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), ns).unwrap();
        must_lead(&guard);
        let working = AtomicBool::new(false);
        let (other, may_end) = (Uuid::new_v4(), AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                guard.lead(|tenure| {
                    working.store(true, Ordering::SeqCst);
                    while tenure.is_current() {
                        thread::sleep(Duration::from_millis(1));
                    }
                    // It needs a while to stop, or does not stop at all.
                    let needs = if hangs { 10 * LEASE } else { LEASE / 2 };
                    let until = Instant::now() + needs;
                    while Instant::now() < until && !may_end.load(Ordering::SeqCst) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    working.store(false, Ordering::SeqCst);
                })
            });
            crate::support::wait_until(PATIENCE, "work runs", || working.load(Ordering::SeqCst));
            scope.spawn(|| guard.step_down());
            let began = Instant::now();
            while election.elect(other, ns).unwrap() != other {
                assert!(!guard.is_leader() || began.elapsed() < LEASE);
                thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(working.load(Ordering::SeqCst), hangs);
            assert!(
                began.elapsed() < 3 * LEASE + LEASE / 2,
                "{:?}",
                began.elapsed()
            );
            may_end.store(true, Ordering::SeqCst);
        });
    }
}

fn a_guard_that_leads_once_does_not_come_back<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let guard = LeaderGuard::builder(&election, Uuid::new_v4(), "x")
        .once()
        .spawn()
        .unwrap();
    must_lead(&guard);
    let events = guard.events();
    fresh
        .connect::<C>()
        .run("DELETE FROM gemstone_election_leader");
    assert_eq!(next_loss(&events), Lost::RowGone);
    assert!(
        guard.wait_until_leader(PATIENCE).is_none(),
        "it says so at once"
    );
    assert!(election.leader("x").unwrap().is_none());
}

fn settings_without_slack_are_refused<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(9));
    let (me, second) = (Uuid::new_v4(), Duration::from_secs(1));
    let builder = || LeaderGuard::builder(&election, me, "x");
    let refused = [
        builder().beat(Duration::from_millis(3001)).spawn(),
        builder().beat(Duration::MAX).spawn(),
        builder().beat(Duration::ZERO).spawn(),
        builder().margin(Duration::MAX).spawn(),
        builder().jitter(Duration::MAX).spawn(),
        builder().attempt_timeout(Duration::MAX).spawn(),
        builder().attempt_timeout(Duration::ZERO).spawn(),
        builder()
            .attempt_timeout(4 * second)
            .margin(2 * second)
            .spawn(),
    ];
    for refused in refused {
        let error = refused.unwrap_err();
        assert!(
            matches!(error, ElectionError::InvalidSetting { .. }),
            "{error}"
        );
    }
    let error = LeaderGuard::spawn(&election, me, "").unwrap_err();
    assert!(
        matches!(error, ElectionError::InvalidNamespace { .. }),
        "{error}"
    );
    assert!(election.list_candidates("x").unwrap().is_empty());
    builder().beat(3 * second).margin(second).spawn().unwrap();
}

/// F10
fn a_lapsed_guard_leaves_its_successor_alone<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    let guard = LeaderGuard::spawn(&election, a, "x").unwrap();
    must_lead(&guard);
    let events = guard.events();
    let conn = &mut fresh.connect::<C>();
    conn.lapse("x");
    assert_eq!(elect(conn, b, Some("x")).unwrap(), b);
    let before = conn.leader_bytes("x");
    let lost = next_loss(&events);
    assert!(
        matches!(lost, Lost::Superseded { by, term } if by == b && term.get() == 2),
        "{lost:?}"
    );
    drop(guard);
    election.unregister_candidate(a, "x").unwrap();
    assert_eq!(conn.leader_bytes("x"), before);
}

/// Two guards of one handle in one namespace beat in one statement; the answer is about one of them.
fn guards_of_one_handle_are_not_mistaken_for_each_other<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let guards = [(); 2].map(|()| LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap());
    let conn = &mut fresh.connect::<C>();
    for _ in 0..6 {
        crate::support::wait_until(PATIENCE, "one leads", || {
            guards.iter().filter(|guard| guard.is_leader()).count() == 1
        });
        let tenure = guards
            .iter()
            .find_map(LeaderGuard::tenure)
            .expect("a leader");
        // Its lease is taken from it, and it does not know yet.
        conn.lapse("x");
        crate::support::wait_until(PATIENCE, "it is noticed", || !tenure.is_current());
        let leading = guards.iter().filter(|guard| guard.is_leader()).count();
        assert!(leading < 2);
    }
    // After that, whoever leads is the one whose row it is.
    thread::sleep(LEASE);
    let stored = election.leader("x").unwrap().expect("a leader");
    let terms: Vec<_> = guards
        .iter()
        .filter_map(LeaderGuard::tenure)
        .map(|t| t.term())
        .collect();
    assert_eq!(terms, [stored.term]);
}

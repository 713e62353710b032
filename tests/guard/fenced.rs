//! Fenced transactions.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use leasehold::election::{ElectionError, LeaderGuard, elect};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::must_lead;

on_every_database![
    what_the_leader_writes_is_committed_and_what_fails_is_not,
    the_write_of_a_tenure_that_ended_unseen_is_refused,
    a_takeover_waits_for_the_commit,
    a_guard_that_has_not_led_yet_is_told_to_wait,
    a_panic_in_the_work_is_rolled_back_and_the_guard_goes_on,
    a_term_that_is_over_is_refused_ever_after,
];

fn with_guard<C: Database>(lease: Duration) -> (Fresh, C, LeaderGuard) {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(lease);
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    let mut conn = fresh.connect::<C>();
    conn.run("CREATE TABLE work (writer INT)");
    (fresh, conn, guard)
}

fn rows<C: Database>(conn: &mut C) -> i64 {
    conn.number("SELECT count(*) AS value FROM work")
}

fn what_the_leader_writes_is_committed_and_what_fails_is_not<C: Database>() {
    let (_fresh, mut conn, guard) = with_guard::<C>(Duration::from_secs(5));
    let done: Result<i32, ElectionError> = guard.transaction(&mut conn, |conn| {
        conn.run("INSERT INTO work VALUES (1)");
        Ok(7)
    });
    assert_eq!((done.unwrap(), rows(&mut conn)), (7, 1));

    /// An error of the caller's own.
    #[derive(Debug)]
    enum Own {
        Election(#[allow(dead_code)] ElectionError),
        Diesel(#[allow(dead_code)] diesel::result::Error),
        Mine,
    }
    impl From<ElectionError> for Own {
        fn from(error: ElectionError) -> Self {
            Own::Election(error)
        }
    }
    impl From<diesel::result::Error> for Own {
        fn from(error: diesel::result::Error) -> Self {
            Own::Diesel(error)
        }
    }
    let failed: Result<(), Own> = guard.transaction(&mut conn, |conn| {
        conn.run("INSERT INTO work VALUES (2)");
        Err(Own::Mine)
    });
    assert!(matches!(failed, Err(Own::Mine)), "{failed:?}");
    assert_eq!(rows(&mut conn), 1);
    // As a part of a transaction that is open already.
    conn.transaction(|conn| {
        guard.transaction(conn, |conn| {
            conn.run("INSERT INTO work VALUES (3)");
            Ok::<_, ElectionError>(())
        })
    })
    .unwrap();
    assert_eq!(rows(&mut conn), 2);
}

/// The guard has not heard yet that another leads: it believes, and is refused all the same.
fn the_write_of_a_tenure_that_ended_unseen_is_refused<C: Database>() {
    let (fresh, mut conn, guard) = with_guard::<C>(Duration::from_secs(60));
    let mut outside = fresh.connect::<C>();
    outside.lapse("x");
    let refused: Result<(), ElectionError> = guard.transaction(&mut conn, |_| unreachable!("over"));
    assert!(
        matches!(refused, Err(ElectionError::NotLeader { .. })),
        "{refused:?}"
    );
    let other = Uuid::new_v4();
    assert_eq!(elect(&mut outside, other, Some("x")).unwrap(), other);
    assert!(guard.is_leader(), "its next beat is far away");
    let refused: Result<(), ElectionError> = guard.transaction(&mut conn, |_| unreachable!("over"));
    let error = refused.unwrap_err();
    assert!(
        matches!(&error, ElectionError::NotLeader { ns, term, .. } if ns == "x" && term.get() == 1)
    );
    assert!(!error.is_retryable());
    assert_eq!(rows(&mut conn), 0);
}

fn a_takeover_waits_for_the_commit<C: Database>() {
    let (fresh, mut conn, guard) = with_guard::<C>(Duration::from_secs(60));
    // A reader beside the writer of an SQLite file.
    let rival = fresh.election_with(Duration::from_secs(60));
    let done: Result<(), ElectionError> = guard.transaction(&mut conn, |conn| {
        // On its own connection the lease has run out meanwhile.
        conn.lapse("x");
        let taken = thread::scope(|scope| scope.spawn(|| rival.elect(Uuid::new_v4(), "x")).join());
        match taken.expect("no panic") {
            Ok(leader) => assert_eq!(
                leader,
                fresh_leader(&fresh),
                "the lease is held as others see it"
            ),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        conn.run("INSERT INTO work VALUES (1)");
        Ok(())
    });
    done.unwrap();
    assert_eq!(rows(&mut conn), 1);
    let successor = Uuid::new_v4();
    assert_eq!(rival.elect(successor, "x").unwrap(), successor);
}

fn fresh_leader(fresh: &Fresh) -> Uuid {
    fresh
        .election()
        .leader("x")
        .unwrap()
        .expect("a leader")
        .candidate_id
}

fn a_guard_that_has_not_led_yet_is_told_to_wait<C: Database>() {
    let (fresh, mut conn, _leads) = with_guard::<C>(Duration::from_secs(60));
    let election = fresh.election_with(Duration::from_secs(60));
    let follower = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    let refused: Result<(), ElectionError> =
        follower.transaction(&mut conn, |_| unreachable!("it follows"));
    let told = refused.unwrap_err().to_string();
    assert!(told.contains("wait until it leads"), "{told}");
    assert!(!told.contains("term 0"), "{told}");
}

/// F18
fn a_panic_in_the_work_is_rolled_back_and_the_guard_goes_on<C: Database>() {
    let (_fresh, mut conn, guard) = with_guard::<C>(Duration::from_secs(5));
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let _: Result<(), ElectionError> = guard.transaction(&mut conn, |conn| {
            conn.run("INSERT INTO work VALUES (1)");
            panic!("in the middle of it");
        });
    }));
    assert!(panicked.is_err());
    assert_eq!(rows(&mut conn), 0);
    assert!(catch_unwind(AssertUnwindSafe(|| guard.lead(|_| panic!("at work")))).is_err());
    assert!(guard.is_leader());
    let done: Result<(), ElectionError> = guard.transaction(&mut conn, |conn| {
        conn.run("INSERT INTO work VALUES (2)");
        Ok(())
    });
    done.unwrap();
    assert_eq!(rows(&mut conn), 1);
    guard.resign().unwrap();
}

/// F11: only the tenure of the current term writes, also when the same candidate leads again.
fn a_term_that_is_over_is_refused_ever_after<C: Database>() {
    let (fresh, mut conn, guard) = with_guard::<C>(Duration::from_secs(60));
    let me = fresh_leader(&fresh);
    let mut outside = fresh.connect::<C>();
    outside.lapse("x");
    assert_eq!(elect(&mut outside, me, Some("x")).unwrap(), me);
    assert!(guard.is_leader());
    let refused: Result<(), ElectionError> = guard.transaction(&mut conn, |_| unreachable!("over"));
    assert!(
        matches!(refused, Err(ElectionError::NotLeader { .. })),
        "{refused:?}"
    );
}

//! The connection in a transaction that the caller has open.

use std::time::Duration;

use diesel::result::Error as DieselError;
use leasehold::election::{
    ElectionError, LeaderGuard, elect, is_leader, leader, list_candidates, unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    what_is_committed_is_seen_and_what_is_rolled_back_is_not,
    a_call_that_fails_leaves_the_callers_work_alone,
    the_answer_is_what_the_database_holds,
    every_function_joins_the_transaction,
    the_callers_session_stays_as_it_was,
];

fn what_is_committed_is_seen_and_what_is_rolled_back_is_not<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (conn, other) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    // Readers and a writer in one SQLite file need the write-ahead log.
    fresh.election();
    let me = Uuid::new_v4();
    let undone = conn.transaction(|conn| {
        assert_eq!(elect(conn, me, Some("x"))?, me);
        assert!(is_leader(conn, me, Some("x"))?, "seen inside");
        assert!(!is_leader(other, me, Some("x"))?, "not seen outside");
        Err::<(), _>(ElectionError::from(DieselError::RollbackTransaction))
    });
    assert!(undone.is_err());
    assert_eq!(leader(other, Some("x")).unwrap(), None);
    assert!(list_candidates(other, Some("x")).unwrap().is_empty());

    conn.transaction(|conn| elect(conn, me, Some("x"))).unwrap();
    assert!(is_leader(other, me, Some("x")).unwrap());
    assert_eq!(list_candidates(other, Some("x")).unwrap(), [me]);
}

fn a_call_that_fails_leaves_the_callers_work_alone<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    conn.run("CREATE TABLE work (done INT)");
    let lease = C::instant(60);
    conn.run(&format!(
        "INSERT INTO gemstone_election_leader VALUES ('bad', 'nobody', {lease}, {lease}, 3)"
    ));
    conn.transaction(|conn| {
        conn.run("INSERT INTO work VALUES (1)");
        elect(conn, Uuid::new_v4(), Some("bad")).unwrap_err();
        elect(conn, Uuid::new_v4(), Some("\0")).unwrap_err();
        conn.run("INSERT INTO work VALUES (2)");
        elect(conn, Uuid::new_v4(), Some("good"))
    })
    .unwrap();
    assert_eq!(conn.number("SELECT count(*) AS value FROM work"), 2);
    assert!(leader(conn, Some("good")).unwrap().is_some());
}

/// F41: the caller has read the leader row before, in the same transaction.
fn the_answer_is_what_the_database_holds<C: Database>() {
    let fresh = Fresh::new::<C>();
    fresh.election();
    for level in C::LEVELS {
        let ns = Uuid::new_v4().to_string();
        let [a, b, c] = [(); 3].map(|()| Uuid::new_v4());
        let (conn, other) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
        conn.run(level);
        elect(other, a, Some(&ns)).unwrap();
        let strict = level.ends_with("SERIALIZABLE") && C::HOLD.contains("FOR UPDATE");
        let answer = conn.transaction(|conn| {
            let read =
                format!("SELECT term AS value FROM gemstone_election_leader WHERE ns = '{ns}'");
            assert_eq!(conn.number(&read), 1);
            if !(strict && level.starts_with("SET SESSION TRANSACTION")) {
                // MySQL's strictest level locks what it reads: nobody could change it then.
                unregister_candidate(other, a, Some(&ns)).unwrap();
                assert_eq!(elect(other, b, Some(&ns)).unwrap(), b);
            }
            // Of the old leader its own snapshot would say that it leads still.
            elect(conn, c, Some(&ns))
        });
        let holds = leader(other, Some(&ns))
            .unwrap()
            .map(|leader| leader.candidate_id);
        match answer {
            Ok(told) => assert_eq!(Some(told), holds, "{level}"),
            // A snapshot that cannot be brought up to date: the caller begins again.
            Err(error) => assert!(error.is_retryable(), "{level}: {error}"),
        }
    }
}

fn every_function_joins_the_transaction<C: Database>() {
    use leasehold::election::{heartbeat, register_candidate};
    let fresh = Fresh::new::<C>();
    fresh.election();
    let (conn, other) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    elect(conn, a, Some("x")).unwrap();
    let undone = conn.transaction(|conn| {
        register_candidate(conn, b, Some("x"))?;
        heartbeat(conn, b, Some("x"))?;
        assert_eq!(list_candidates(conn, Some("x"))?.len(), 2);
        unregister_candidate(conn, a, Some("x"))?;
        assert_eq!(leader(conn, Some("x"))?, None);
        assert_eq!(elect(conn, b, Some("x"))?, b);
        assert!(is_leader(other, a, Some("x"))?);
        Err::<(), _>(ElectionError::from(DieselError::RollbackTransaction))
    });
    assert!(undone.is_err());
    assert_eq!(list_candidates(other, Some("x")).unwrap(), [a]);
    assert_eq!(leader(other, Some("x")).unwrap().unwrap().term.get(), 1);
}

/// After every function, in a transaction of the caller's and without one, and after one that fails.
fn the_callers_session_stays_as_it_was<C: Database>() {
    use leasehold::election::{heartbeat, migrate, register_candidate};
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    let conn = &mut fresh.connect::<C>();
    let (me, other) = (Uuid::new_v4(), Uuid::new_v4());
    let guard = LeaderGuard::spawn(&election, other, "guarded").unwrap();
    guard.wait_until_leader(Duration::from_secs(60)).unwrap();
    let lease = C::instant(60);
    conn.run(&format!(
        "INSERT INTO gemstone_election_leader VALUES ('bad', 'nobody', {lease}, {lease}, 3)"
    ));
    type Act<'a, C> = (
        &'static str,
        &'a dyn Fn(&mut C) -> Result<(), ElectionError>,
    );
    let elect_in = |conn: &mut C, me, ns| elect(conn, me, Some(ns)).map(drop);
    let acts: [Act<'_, C>; 13] = [
        ("elect, taking", &|conn| elect_in(conn, me, "x")),
        ("elect, renewing", &|conn| elect_in(conn, me, "x")),
        ("elect, following", &|conn| elect_in(conn, other, "x")),
        ("elect, failing", &|conn| match elect_in(conn, me, "bad") {
            Err(ElectionError::Corrupt { .. }) => Ok(()),
            outcome => panic!("{outcome:?}"),
        }),
        ("heartbeat", &|conn| heartbeat(conn, me, Some("x"))),
        ("register", &|conn| {
            register_candidate(conn, Uuid::new_v4(), Some("x"))
        }),
        ("is_leader", &|conn| {
            is_leader(conn, me, Some("x")).map(drop)
        }),
        ("leader", &|conn| leader(conn, Some("x")).map(drop)),
        ("list", &|conn| list_candidates(conn, Some("x")).map(drop)),
        ("unregister, following", &|conn| {
            unregister_candidate(conn, other, Some("x"))
        }),
        ("unregister, leading", &|conn| {
            unregister_candidate(conn, me, Some("x"))
        }),
        ("a fenced transaction", &|conn| {
            guard.transaction(conn, |_| Ok(()))
        }),
        ("migrate", &|conn| migrate(conn)),
    ];
    let outside = conn.settings();
    for (name, act) in &acts {
        act(conn).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(conn.settings(), outside, "after {name}");
    }
    conn.transaction(|conn| {
        let inside = conn.settings();
        for (name, act) in &acts[..acts.len() - 1] {
            act(conn).unwrap_or_else(|error| panic!("{name}, in a transaction: {error}"));
            assert_eq!(conn.settings(), inside, "after {name}, in a transaction");
        }
        Ok::<_, ElectionError>(())
    })
    .unwrap();
    assert_eq!(conn.settings(), outside, "after the transaction");
}

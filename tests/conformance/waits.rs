//! A wait on another session is bounded, whatever it holds, and a lease is never counted from
//! before a wait.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{ElectionError, elect, heartbeat, leader, migrate, unregister_candidate};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    a_registration_that_is_held_neither_hangs_a_call_nor_ends_in_a_lease_that_is_over,
    an_uncommitted_first_election_does_not_hang_another,
    many_bare_connections_may_migrate_at_once,
    a_dropped_table_comes_back_with_a_migration,
];

/// Holds the registration of `me` in `x` for as long as `work` runs.
fn while_registration_is_held<C: Database>(fresh: &Fresh, me: Uuid, work: impl FnOnce()) {
    let mut holder = fresh.connect::<C>();
    holder.hold_row("nobody");
    holder.run(&format!(
        "UPDATE gemstone_election_candidate SET expires_at = expires_at WHERE candidate_id = '{me}'"
    ));
    work();
    holder.run("ROLLBACK");
}

fn a_registration_that_is_held_neither_hangs_a_call_nor_ends_in_a_lease_that_is_over<
    C: Database,
>() {
    let fresh = Fresh::new::<C>();
    fresh.election();
    let (me, other) = (Uuid::new_v4(), Uuid::new_v4());
    let conn = &mut fresh.connect::<C>();
    elect(conn, me, Some("x")).unwrap();
    type CallOf<C> = fn(&mut C, Uuid, Option<&str>) -> Result<(), ElectionError>;
    let elects: CallOf<C> = |conn, me, ns| elect(conn, me, ns).map(drop);
    let calls: [CallOf<C>; 3] = [heartbeat, unregister_candidate, elects];
    while_registration_is_held::<C>(&fresh, me, || {
        for call in calls {
            let began = Instant::now();
            let error = call(&mut fresh.connect::<C>(), me, Some("x")).unwrap_err();
            assert!(error.is_retryable(), "{error}");
            assert!(
                began.elapsed() < Duration::from_secs(20),
                "{:?}",
                began.elapsed()
            );
        }
    });
    assert_eq!(elect(conn, other, Some("x")).unwrap(), me);

    // It is let go within the time of the call: the lease counts from then.
    let election = fresh.election_with(Duration::from_secs(1));
    for ns in ["renewed", "taken"] {
        election.elect(me, ns).unwrap();
        if ns == "taken" {
            fresh.connect::<C>().lapse(ns);
        }
        thread::scope(|scope| {
            let mut waiting = None;
            while_registration_is_held::<C>(&fresh, me, || {
                waiting = Some(scope.spawn(|| election.elect(me, ns)));
                thread::sleep(Duration::from_millis(1300));
            });
            if let Ok(told) = waiting.expect("it was started").join().expect("no panic") {
                let found = election.leader(ns).unwrap();
                assert_eq!(found.map(|found| found.candidate_id), Some(told), "{ns}");
            }
        });
    }
}

fn an_uncommitted_first_election_does_not_hang_another<C: Database>() {
    let fresh = Fresh::new::<C>();
    fresh.election();
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let (conn, other) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    conn.transaction(|conn| {
        assert_eq!(elect(conn, first, Some("x"))?, first);
        let began = Instant::now();
        let error = elect(other, second, Some("x")).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert!(
            began.elapsed() < Duration::from_secs(20),
            "{:?}",
            began.elapsed()
        );
        // The same from within another's transaction, on servers that have more than one.
        if !C::HOLD.starts_with("BEGIN IMMEDIATE") {
            let inner = other.transaction(|other| elect(other, second, Some("x")));
            assert!(inner.unwrap_err().is_retryable());
        }
        Ok::<_, ElectionError>(())
    })
    .unwrap();
    assert_eq!(elect(other, second, Some("x")).unwrap(), first);
}

fn many_bare_connections_may_migrate_at_once<C: Database>() {
    for level in C::LEVELS {
        let fresh = Fresh::without_tables::<C>();
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mut conn = fresh.connect::<C>();
                    conn.run(level);
                    migrate(&mut conn).unwrap_or_else(|error| panic!("{level}: {error}"));
                });
            }
        });
        let me = Uuid::new_v4();
        assert_eq!(elect(&mut fresh.connect::<C>(), me, None).unwrap(), me);
    }
}

fn a_dropped_table_comes_back_with_a_migration<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    conn.run("DROP TABLE gemstone_election_candidate");
    let error = elect(conn, me, Some("x")).unwrap_err();
    assert!(matches!(error, ElectionError::Schema { .. }), "{error}");
    migrate(conn).unwrap();
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 1);
}

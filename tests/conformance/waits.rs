//! A wait on another session is bounded, whatever it holds, and a lease is never counted from
//! before a wait.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{
    ElectionError, elect, heartbeat, leader, list_candidates, migrate, unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    a_registration_that_is_held_neither_hangs_a_call_nor_ends_in_a_lease_that_is_over,
    an_uncommitted_first_election_does_not_hang_another,
    a_table_that_is_locked_as_a_whole_hangs_no_call,
    registrations_that_ended_long_ago_and_are_held_stop_no_new_one,
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

/// As an `ALTER TABLE` of an application's own migration does it. On a connection of the caller's, a
/// plain read waits as long as its settings say; a transaction of the call's does not.
fn a_table_that_is_locked_as_a_whole_hangs_no_call<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(1));
    let me = Uuid::new_v4();
    election.elect(me, "x").unwrap();
    let (holder, conn) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    let settings = conn.settings();
    let within_20_s = |what: &str, outcome: &dyn Fn() -> Result<(), ElectionError>| {
        let began = Instant::now();
        if let Err(error) = outcome() {
            assert!(error.is_retryable(), "{what}: {error}");
        }
        let took = began.elapsed();
        assert!(took < Duration::from_secs(20), "{what}: {took:?}");
    };
    holder.run(C::HOLD_TABLE);
    within_20_s("a renewal", &|| election.elect(me, "x").map(drop));
    within_20_s("a claim", &|| {
        election.elect(Uuid::new_v4(), "new").map(drop)
    });
    within_20_s("a look", &|| election.is_leader(me, "x").map(drop));
    let began = Instant::now();
    let inside = conn.transaction(|conn| elect(conn, me, Some("x")));
    assert!(inside.unwrap_err().is_retryable());
    assert!(began.elapsed() < Duration::from_secs(20));
    holder.run(C::FREE_TABLE);
    assert_eq!(conn.settings(), settings);
    let inside = conn.transaction(|conn| {
        elect(conn, me, Some("x"))?;
        assert_eq!(conn.settings(), settings);
        Ok::<_, ElectionError>(())
    });
    inside.unwrap();
    assert_eq!(conn.settings(), settings);
    heartbeat(conn, me, Some("x")).unwrap();
    unregister_candidate(conn, me, Some("x")).unwrap();
    assert_eq!(conn.settings(), settings);
}

/// Whoever registers anew removes what is left of others, and does without where that is held.
fn registrations_that_ended_long_ago_and_are_held_stop_no_new_one<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (holder, conn) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    conn.leave_registrations("x", 40, -2 * 86_400);
    // Where a file has one writer at a time, the registration itself has to wait.
    if C::HOLD.starts_with("BEGIN IMMEDIATE") {
        return;
    }
    // Above this level MariaDB would hold the places of new rows as well.
    holder.run(
        C::LEVELS
            .iter()
            .find(|level| level.ends_with(" READ COMMITTED"))
            .unwrap(),
    );
    holder.hold_row("nobody");
    holder.run("UPDATE gemstone_election_candidate SET expires_at = expires_at");
    let me = Uuid::new_v4();
    let began = Instant::now();
    heartbeat(conn, me, Some("x")).unwrap();
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), [me]);
    holder.run("ROLLBACK");
    let count = "SELECT count(*) AS value FROM gemstone_election_candidate";
    assert_eq!(conn.number(count), 41);
}

/// By an operator, or at the end of `max_statement_time`.
#[cfg(feature = "mysql")]
#[test]
fn a_renewal_that_is_killed_half_way_leaves_no_transaction_open() {
    type Conn = diesel::mysql::MysqlConnection;
    let fresh = Fresh::new::<Conn>();
    let (conn, killer) = (&mut fresh.connect::<Conn>(), &mut fresh.connect::<Conn>());
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    // While the killer holds a lock of this name.
    conn.run(&format!(
        "CREATE TRIGGER pause BEFORE UPDATE ON gemstone_election_candidate FOR EACH ROW
             DO IF(IS_USED_LOCK('{me}'), SLEEP(60), 0)"
    ));
    assert_eq!(
        killer.number(&format!("SELECT GET_LOCK('{me}', 0) AS value")),
        1
    );
    let id = conn.number("SELECT CAST(CONNECTION_ID() AS SIGNED) AS value");
    thread::scope(|scope| {
        let renewal = scope.spawn(|| elect(conn, me, Some("x")));
        let sleeps = format!(
            "SELECT count(*) AS value FROM information_schema.processlist
             WHERE id = {id} AND state = 'User sleep'"
        );
        crate::support::wait_until(Duration::from_secs(20), "the renewal pauses", || {
            killer.number(&sleeps) == 1
        });
        killer.run(&format!("DO RELEASE_LOCK('{me}'); KILL QUERY {id}"));
        // It is told by the full transaction, or that it may ask again.
        match renewal.join().expect("no panic") {
            Ok(leader) => assert_eq!(leader, me),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    });
    assert_eq!(
        conn.number("SELECT CAST(@@in_transaction AS SIGNED) AS value"),
        0
    );
    let before = killer.leader_bytes("x");
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    assert_ne!(
        killer.leader_bytes("x"),
        before,
        "what it writes is committed"
    );
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
    let fresh = Fresh::without_tables::<C>();
    let (conn, other) = (&mut fresh.connect::<C>(), &mut fresh.connect::<C>());
    migrate(conn).unwrap();
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    conn.run("DROP TABLE gemstone_election_candidate");
    let error = elect(conn, me, Some("x")).unwrap_err();
    assert!(matches!(error, ElectionError::Schema { .. }), "{error}");
    // The first migration is over: nothing of it keeps another session from one.
    let began = Instant::now();
    migrate(other).unwrap();
    assert!(began.elapsed() < Duration::from_secs(20));
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 1);
}

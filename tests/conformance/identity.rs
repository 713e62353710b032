//! Who holds what, and under which term.

use std::time::Duration;

use leasehold::election::{
    ElectionError, elect, is_leader, leader, list_candidates, register_candidate,
    unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    the_term_grows_with_every_acquisition_and_with_nothing_else,
    a_lapsed_leader_cannot_take_the_lease_of_its_successor_along,
    a_deleted_leader_row_does_not_reset_the_term,
    a_row_made_anew_by_something_else_does_not_reset_the_term,
    the_last_term_is_refused_and_not_wrapped,
    what_candidates_leave_behind_does_not_pile_up,
];

/// F11
fn the_term_grows_with_every_acquisition_and_with_nothing_else<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    let elect = |conn: &mut C| {
        elect(conn, me, Some("x")).unwrap();
        leader(conn, Some("x")).unwrap().unwrap().term
    };
    let first = elect(conn);
    for _ in 0..3 {
        assert_eq!(elect(conn), first, "a renewal keeps the term");
    }
    conn.lapse("x");
    let after_lapse = elect(conn);
    unregister_candidate(conn, me, Some("x")).unwrap();
    let after_release = elect(conn);
    unregister_candidate(conn, me, Some("x")).unwrap();
    register_candidate(conn, me, Some("x")).unwrap();
    let after_return = elect(conn);
    assert!(first < after_lapse && after_lapse < after_release && after_release < after_return);
}

/// F10, as far as the functions go
fn a_lapsed_leader_cannot_take_the_lease_of_its_successor_along<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    elect(conn, a, Some("x")).unwrap();
    conn.lapse("x");
    assert_eq!(elect(conn, b, Some("x")).unwrap(), b);
    let before = conn.leader_bytes("x");
    unregister_candidate(conn, a, Some("x")).unwrap();
    assert_eq!(conn.leader_bytes("x"), before);
    assert!(is_leader(conn, b, Some("x")).unwrap());
}

/// F17, as far as the functions go
fn a_deleted_leader_row_does_not_reset_the_term<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    elect(conn, a, Some("x")).unwrap();
    let before = leader(conn, Some("x")).unwrap().unwrap().term;
    conn.run("DELETE FROM gemstone_election_leader");
    assert!(!is_leader(conn, a, Some("x")).unwrap());
    assert_eq!(elect(conn, b, Some("x")).unwrap(), b);
    assert!(leader(conn, Some("x")).unwrap().unwrap().term > before);

    // With the history gone as well, an election begins anew.
    conn.run("DELETE FROM gemstone_election_leader");
    conn.run("DELETE FROM gemstone_election_tenure");
    conn.run("DELETE FROM gemstone_election_candidate");
    assert_eq!(elect(conn, a, Some("x")).unwrap(), a);
}

fn a_row_made_anew_by_something_else_does_not_reset_the_term<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    for _ in 0..3 {
        elect(conn, a, Some("x")).unwrap();
        unregister_candidate(conn, a, Some("x")).unwrap();
    }
    let (lease, now) = (C::instant(-1), C::instant(-60));
    conn.run("DELETE FROM gemstone_election_leader");
    conn.run(&format!(
        "INSERT INTO gemstone_election_leader (ns, leader_id, lease_expires_at, updated_at)
         VALUES ('x', '{a}', {lease}, {now})"
    ));
    elect(conn, b, Some("x")).unwrap();
    assert_eq!(leader(conn, Some("x")).unwrap().unwrap().term.get(), 4);
}

fn the_last_term_is_refused_and_not_wrapped<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    elect(conn, me, Some("x")).unwrap();
    conn.run(&format!(
        "UPDATE gemstone_election_leader SET term = {}",
        i64::MAX
    ));
    elect(conn, me, Some("x")).unwrap();
    conn.lapse("x");
    let before = conn.leader_bytes("x");
    let error = elect(conn, me, Some("x")).unwrap_err();
    assert!(matches!(error, ElectionError::Corrupt { .. }), "{error}");
    assert_eq!(conn.leader_bytes("x"), before);
    assert_eq!(
        leader(conn, Some("x")).unwrap().map(|l| l.remaining),
        None::<Duration>
    );
}

/// Processes that draw a new id at every start, and never say goodbye.
fn what_candidates_leave_behind_does_not_pile_up<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    conn.leave_registrations("x", 200, -2 * 86_400);
    conn.leave_registrations("x", 200, -3600);
    let mut expected = Vec::new();
    for n in 0..300 {
        let me = Uuid::new_v4();
        match n % 2 {
            0 => drop(elect(conn, me, Some("x")).unwrap()),
            _ => register_candidate(conn, me, Some("x")).unwrap(),
        }
        expected.push(me);
    }
    let count = |conn: &mut C, condition: String| {
        conn.number(&format!(
            "SELECT count(*) AS value FROM gemstone_election_candidate WHERE {condition}"
        ))
    };
    let dead = count(conn, format!("expires_at < {}", C::instant(-86_400)));
    assert!(dead < 60, "{dead} of 200 that ended two days ago are left");
    let lately = count(conn, format!("expires_at < {}", C::instant(-60)));
    assert_eq!(
        lately - dead,
        200,
        "what ended today is kept for a look at it"
    );
    expected.sort();
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), expected);
}

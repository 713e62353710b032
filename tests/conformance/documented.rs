//! Every sentence of the documented API.

use std::time::Duration;

use leasehold::election::{
    ElectionError, Ending, elect, heartbeat, is_leader, leader, list_candidates,
    register_candidate, unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    a_vacant_lease_is_taken,
    an_expired_lease_is_taken,
    a_lease_held_by_the_caller_is_renewed,
    an_unexpired_lease_is_not_preempted,
    elect_registers_the_candidate,
    a_follower_that_calls_often_writes_seldom,
    heartbeat_equals_register_candidate,
    a_heartbeat_extends_the_registration_and_not_the_lease,
    unregister_clears_leadership_only_if_it_led,
    unregister_leaves_others_registered_and_forgives_strangers,
    the_list_is_sorted_and_holds_only_unexpired_candidates,
    none_is_the_namespace_default,
    namespaces_are_independent,
    a_lapsed_holder_is_no_leader,
    the_handle_gives_the_same_answers,
    a_row_that_no_election_writes_is_corrupt_and_stays,
    the_history_tells_who_led_and_why_it_ended,
    the_history_is_bounded,
];

fn ids<const N: usize>() -> [Uuid; N] {
    std::array::from_fn(|_| Uuid::new_v4())
}

fn a_vacant_lease_is_taken<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    assert_eq!(leader(conn, Some("x")).unwrap(), None);
    assert!(!is_leader(conn, me, Some("x")).unwrap());
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    assert!(is_leader(conn, me, Some("x")).unwrap());
    let found = leader(conn, Some("x")).unwrap().unwrap();
    assert_eq!((found.candidate_id, found.term.get()), (me, 1));
    assert!(
        found.remaining > Duration::from_secs(55) && found.remaining <= Duration::from_secs(60)
    );
}

fn an_expired_lease_is_taken<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [old, new] = ids();
    elect(conn, old, Some("x")).unwrap();
    conn.lapse("x");
    assert_eq!(elect(conn, new, Some("x")).unwrap(), new);
    assert_eq!(elect(conn, old, Some("x")).unwrap(), new);
}

fn a_lease_held_by_the_caller_is_renewed<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    elect(conn, me, Some("x")).unwrap();
    let soon = C::instant(5);
    conn.run(&format!(
        "UPDATE gemstone_election_leader SET lease_expires_at = {soon}"
    ));
    assert_eq!(elect(conn, me, Some("x")).unwrap(), me);
    let found = leader(conn, Some("x")).unwrap().unwrap();
    assert!(found.remaining > Duration::from_secs(55));
    assert_eq!(found.term.get(), 1);
}

fn an_unexpired_lease_is_not_preempted<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [first, second] = ids();
    elect(conn, first, Some("x")).unwrap();
    let before = conn.leader_bytes("x");
    for _ in 0..3 {
        assert_eq!(elect(conn, second, Some("x")).unwrap(), first);
    }
    assert_eq!(conn.leader_bytes("x"), before);
    assert!(!is_leader(conn, second, Some("x")).unwrap());
}

fn elect_registers_the_candidate<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let mut both: [Uuid; 2] = ids();
    for me in both {
        elect(conn, me, Some("x")).unwrap();
    }
    both.sort();
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), both);
}

fn a_follower_that_calls_often_writes_seldom<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [first, second] = ids();
    elect(conn, first, Some("x")).unwrap();
    elect(conn, second, Some("x")).unwrap();
    let beats = |conn: &mut C| {
        conn.text(&format!(
            "SELECT cast(last_heartbeat_at as char(40)) AS value
             FROM gemstone_election_candidate WHERE candidate_id = '{second}'"
        ))
    };
    let before = beats(conn);
    elect(conn, second, Some("x")).unwrap();
    assert_eq!(beats(conn), before, "most of its registration was left");
    let (beat, end) = (C::instant(-21), C::instant(39));
    conn.run(&format!(
        "UPDATE gemstone_election_candidate SET last_heartbeat_at = {beat}, expires_at = {end}"
    ));
    let before = beats(conn);
    elect(conn, second, Some("x")).unwrap();
    assert_ne!(beats(conn), before, "a third of its registration was over");
}

fn heartbeat_equals_register_candidate<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    for call in [heartbeat::<C>, register_candidate::<C>] {
        unregister_candidate(conn, me, Some("x")).unwrap();
        call(conn, me, Some("x")).unwrap();
        assert_eq!(list_candidates(conn, Some("x")).unwrap(), [me]);
        let past = C::instant(-1);
        conn.run(&format!(
            "UPDATE gemstone_election_candidate SET expires_at = {past}"
        ));
        assert!(list_candidates(conn, Some("x")).unwrap().is_empty());
        call(conn, me, Some("x")).unwrap();
        assert_eq!(list_candidates(conn, Some("x")).unwrap(), [me]);
        assert_eq!(leader(conn, Some("x")).unwrap(), None);
    }
}

fn a_heartbeat_extends_the_registration_and_not_the_lease<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    elect(conn, me, Some("x")).unwrap();
    let before = conn.leader_bytes("x");
    let soon = C::instant(1);
    conn.run(&format!(
        "UPDATE gemstone_election_candidate SET expires_at = {soon}"
    ));
    heartbeat(conn, me, Some("x")).unwrap();
    let rows = fresh.election().candidates("x").unwrap();
    let row = &rows[0];
    assert_eq!(
        (rows.len(), row.candidate_id, row.ns.as_str()),
        (1, me, "x")
    );
    let life = (row.expires_at - row.last_heartbeat_at).num_milliseconds();
    assert!((59_999..=60_001).contains(&life), "{life}");
    assert_eq!(conn.leader_bytes("x"), before);
}

fn unregister_clears_leadership_only_if_it_led<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [first, second] = ids();
    elect(conn, first, Some("x")).unwrap();
    elect(conn, second, Some("x")).unwrap();
    let before = conn.leader_bytes("x");
    unregister_candidate(conn, second, Some("x")).unwrap();
    assert_eq!(conn.leader_bytes("x"), before);
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), [first]);

    unregister_candidate(conn, first, Some("x")).unwrap();
    assert_eq!(leader(conn, Some("x")).unwrap(), None);
    assert!(!is_leader(conn, first, Some("x")).unwrap());
    assert!(list_candidates(conn, Some("x")).unwrap().is_empty());
    let row = fresh.election().leader_row("x").unwrap().unwrap();
    assert_eq!((row.leader_id, row.lease_expires_at), (None, None));
    assert_eq!(elect(conn, second, Some("x")).unwrap(), second);
}

fn unregister_leaves_others_registered_and_forgives_strangers<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me, stranger] = ids();
    unregister_candidate(conn, stranger, Some("never seen")).unwrap();
    register_candidate(conn, me, Some("x")).unwrap();
    unregister_candidate(conn, stranger, Some("x")).unwrap();
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), [me]);
}

fn the_list_is_sorted_and_holds_only_unexpired_candidates<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let mut all: [Uuid; 30] = ids();
    for me in all {
        register_candidate(conn, me, Some("x")).unwrap();
    }
    all.sort();
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), all);
    let past = C::instant(-1);
    conn.run(&format!(
        "UPDATE gemstone_election_candidate SET expires_at = {past} WHERE candidate_id = '{}'",
        all[7]
    ));
    let rest: Vec<Uuid> = all.iter().copied().filter(|id| *id != all[7]).collect();
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), rest);
}

fn none_is_the_namespace_default<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me, other] = ids();
    assert_eq!(elect(conn, me, None).unwrap(), me);
    assert_eq!(elect(conn, other, Some("default")).unwrap(), me);
    assert_eq!(
        leader(conn, Some("default")).unwrap().unwrap().candidate_id,
        me
    );
    heartbeat(conn, other, None).unwrap();
    assert_eq!(list_candidates(conn, Some("default")).unwrap().len(), 2);
    unregister_candidate(conn, me, None).unwrap();
    assert_eq!(elect(conn, other, Some("default")).unwrap(), other);
    assert!(is_leader(conn, other, None).unwrap());
}

fn namespaces_are_independent<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [a, b] = ids();
    assert_eq!(elect(conn, a, Some("x")).unwrap(), a);
    assert_eq!(elect(conn, b, Some("y")).unwrap(), b);
    assert!(!is_leader(conn, a, Some("y")).unwrap());
    assert_eq!(list_candidates(conn, Some("x")).unwrap(), [a]);
    unregister_candidate(conn, a, Some("y")).unwrap();
    unregister_candidate(conn, a, Some("x")).unwrap();
    assert!(is_leader(conn, b, Some("y")).unwrap());
}

fn a_lapsed_holder_is_no_leader<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    elect(conn, me, Some("x")).unwrap();
    conn.lapse("x");
    assert!(!is_leader(conn, me, Some("x")).unwrap());
    assert_eq!(leader(conn, Some("x")).unwrap(), None);
}

fn the_handle_gives_the_same_answers<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    let conn = &mut fresh.connect::<C>();
    let [a, b] = ids();
    assert_eq!(election.elect(a, "x").unwrap(), a);
    assert_eq!(elect(conn, b, Some("x")).unwrap(), a);
    assert!(election.is_leader(a, "x").unwrap() && !election.is_leader(b, "x").unwrap());
    assert_eq!(election.leader("x").unwrap().unwrap().candidate_id, a);
    assert_eq!(
        election.list_candidates("x").unwrap(),
        list_candidates(conn, Some("x")).unwrap()
    );
    election.unregister_candidate(a, "x").unwrap();
    election.register_candidate(a, "x").unwrap();
    election.heartbeat(a, "x").unwrap();
    assert_eq!(election.clone().elect(b, "x").unwrap(), b);
    assert_eq!(election.elect(a, None).unwrap(), a);
    assert_eq!(election.leader(None).unwrap().unwrap().candidate_id, a);
    election.set_expire(7).unwrap();
    election.elect(a, None).unwrap();
    let left = election.leader(None).unwrap().unwrap().remaining;
    assert!(
        left <= Duration::from_secs(7) && left > Duration::from_secs(5),
        "{left:?}"
    );
}

fn a_row_that_no_election_writes_is_corrupt_and_stays<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [me] = ids();
    let lease = C::instant(60);
    let id = Uuid::new_v4();
    let cases = [
        ("no uuid", format!("'nonsense', {lease}"), 1),
        (
            "upper case",
            format!("'{}', {lease}", id.to_string().to_uppercase()),
            1,
        ),
        ("not hyphenated", format!("'{}', {lease}", id.simple()), 1),
        ("without lease", format!("'{id}', NULL"), 1),
        ("without leader", format!("NULL, {lease}"), 1),
        ("negative term", format!("'{id}', {lease}"), -1),
    ];
    for (ns, values, term) in &cases {
        let now = C::instant(0);
        conn.run(&format!(
            "INSERT INTO gemstone_election_leader (ns, leader_id, lease_expires_at, updated_at, term)
             VALUES ('{ns}', {values}, {now}, {term})"
        ));
        let before = conn.leader_bytes(ns);
        let errors = [
            elect(conn, me, Some(ns)).unwrap_err(),
            is_leader(conn, me, Some(ns)).unwrap_err(),
            leader(conn, Some(ns)).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, ElectionError::Corrupt { table: "gemstone_election_leader", ns: found, .. } if found == ns),
                "{ns}: {error}"
            );
            assert!(!error.is_retryable());
        }
        assert_eq!(conn.leader_bytes(ns), before);
    }
    let (beat, end) = (C::instant(0), C::instant(60));
    conn.run(&format!(
        "INSERT INTO gemstone_election_candidate VALUES ('x', 'somebody', {beat}, {end})"
    ));
    let error = list_candidates(conn, Some("x")).unwrap_err();
    assert!(
        matches!(
            error,
            ElectionError::Corrupt {
                table: "gemstone_election_candidate",
                ..
            }
        ),
        "{error}"
    );
}

fn the_history_tells_who_led_and_why_it_ended<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [a, b, c] = ids();
    elect(conn, a, Some("x")).unwrap();
    elect(conn, a, Some("x")).unwrap();
    unregister_candidate(conn, a, Some("x")).unwrap();
    elect(conn, b, Some("x")).unwrap();
    conn.lapse("x");
    elect(conn, c, Some("x")).unwrap();
    conn.run("UPDATE gemstone_election_leader SET leader_id = NULL, lease_expires_at = NULL");
    elect(conn, a, Some("x")).unwrap();
    let history = fresh.election().history("x", 10).unwrap();
    let told: Vec<_> = history
        .iter()
        .map(|t| (t.term.get(), t.leader_id, t.ended_by))
        .collect();
    assert_eq!(
        told,
        [
            (4, a, None),
            (3, c, Some(Ending::Superseded)),
            (2, b, Some(Ending::Expired)),
            (1, a, Some(Ending::Resigned)),
        ]
    );
    assert!(
        history
            .iter()
            .all(|t| t.ended_at.is_some() == t.ended_by.is_some())
    );
    assert!(history[3].ended_at.unwrap() <= history[2].began_at);
    assert_eq!(fresh.election().history("x", 2).unwrap().len(), 2);
}

fn the_history_is_bounded<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let [a] = ids();
    elect(conn, a, Some("x")).unwrap();
    conn.run("UPDATE gemstone_election_leader SET term = 5000");
    for term in [4001, 4002] {
        let now = C::instant(0);
        conn.run(&format!(
            "INSERT INTO gemstone_election_tenure (ns, term, leader_id, began_at)
             VALUES ('x', {term}, '{a}', {now})"
        ));
    }
    unregister_candidate(conn, a, Some("x")).unwrap();
    elect(conn, a, Some("x")).unwrap();
    let history = fresh.election().history("x", 10).unwrap();
    let terms: Vec<i64> = history.iter().map(|tenure| tenure.term.get()).collect();
    assert_eq!(terms, [5001, 4002]);
}

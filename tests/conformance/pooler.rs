//! A pooler in transaction mode, which gives each statement whichever server session is free.

#![cfg(feature = "postgres")]

use std::collections::BTreeSet;
use std::sync::Barrier;
use std::thread;

use diesel::pg::PgConnection;
use leasehold::election::{Election, list_candidates};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::support::{PgBouncer, Postgres};

const RACERS: usize = 8;
const ROUNDS: usize = 40;

#[test]
fn candidates_that_share_two_server_sessions_elect_one() {
    let fresh = Fresh::new::<PgConnection>();
    let pooler = PgBouncer::in_front_of(Postgres::shared());
    let election = Election::builder(&pooler.url_of(&fresh.url))
        .prepared_statements(false)
        .pool_size(RACERS as u32)
        .build()
        .unwrap();
    let conn = &mut fresh.connect::<PgConnection>();
    conn.leave_registrations("0", 200, -2 * 86_400);
    let gate = Barrier::new(RACERS);
    let race = |_| {
        let me = Uuid::new_v4();
        let told = (0..ROUNDS).map(|round| {
            let ns = round.to_string();
            gate.wait();
            let leader = election.elect(me, &*ns).unwrap();
            // Whoever leads is renewed in one exchange from the third call on.
            for _ in 0..3 {
                assert_eq!(election.elect(me, &*ns).unwrap(), leader);
            }
            assert_eq!(election.is_leader(me, &*ns).unwrap(), me == leader);
            leader
        });
        (me, told.collect::<Vec<Uuid>>())
    };
    let told: Vec<(Uuid, Vec<Uuid>)> = thread::scope(|scope| {
        let racers = [(); RACERS].map(|()| scope.spawn(|| race(())));
        racers.map(|racer| racer.join().unwrap()).into()
    });
    let racers: BTreeSet<Uuid> = told.iter().map(|(me, _)| *me).collect();
    for round in 0..ROUNDS {
        let leaders: BTreeSet<Uuid> = told.iter().map(|(_, leaders)| leaders[round]).collect();
        assert_eq!(leaders.len(), 1, "round {round}: {leaders:?}");
        let ns = round.to_string();
        let row = election.leader_row(&*ns).unwrap().unwrap();
        assert_eq!(row.term.get(), 1, "round {round}");
        let listed = list_candidates(conn, Some(&ns)).unwrap();
        assert!(listed.iter().eq(&racers), "round {round}");
    }
    for _ in 0..100 {
        election.heartbeat(Uuid::new_v4(), "0").unwrap();
    }
    let dead = format!(
        "SELECT count(*) AS value FROM gemstone_election_candidate WHERE expires_at < {}",
        PgConnection::instant(-86_400)
    );
    let dead = conn.number(&dead);
    assert!(dead < 100, "{dead} of 200 that ended two days ago are left");
}

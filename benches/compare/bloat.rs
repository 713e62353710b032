//! Beats for a long time while an old snapshot is held open, so that nothing can be vacuumed away.

use std::thread;
use std::time::{Duration, Instant};

use diesel::connection::SimpleConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use leasehold::election::LeaderGuard;
use uuid::Uuid;

use crate::support::database::{Database, Kind, postgres};

const NAMESPACES: usize = 100;

/// A hundred guards at a beat that a real one would have in a lease of 15 seconds, and one candidate who calls `elect`
/// as often as the database lets it.
pub fn print(time: Duration) {
    let database = Kind::Postgres.fresh();
    let election = database.election(2);
    let me = Uuid::new_v4();
    let beat = |guard: usize| {
        let ns = format!("ns-{guard}");
        let builder = LeaderGuard::builder(&election, me, &ns);
        builder.beat(Duration::from_secs(5)).spawn().unwrap()
    };
    let guards: Vec<LeaderGuard> = (0..NAMESPACES).map(beat).collect();
    let mut old = PgConnection::establish(&database.url).expect("the server answers");
    // A second that nobody holds anything up in, then the snapshot.
    thread::sleep(Duration::from_secs(1));
    old.batch_execute(
        "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM gemstone_election_leader",
    )
    .expect("a snapshot");
    println!(
        "| after | renewals by elect | table | updates | HOT | ratio | dead rows | table kB | index kB |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let start = Instant::now();
    let mut renewals = 0_u64;
    for part in 1..=5_u32 {
        let until = time * part / 5;
        while start.elapsed() < until {
            // Every 10 ms: a hundred times what a guard does in a lease of a minute.
            assert_eq!(election.elect(me, "busy").unwrap(), me);
            renewals += 1;
            thread::sleep(Duration::from_millis(10));
        }
        report(&database, until, renewals);
    }
    old.batch_execute("ROLLBACK").expect("the snapshot ends");
    database.exec("VACUUM gemstone_election_leader; VACUUM gemstone_election_candidate");
    println!("\nthe snapshot closed, after VACUUM:");
    report(&database, time, renewals);
    drop(guards);
}

fn report(database: &Database, after: Duration, renewals: u64) {
    // The figures of a session are told when it is idle, and at most once a second.
    thread::sleep(Duration::from_millis(1500));
    let told = postgres().exec_in(
        &database.name,
        "SELECT relname, n_tup_upd, n_tup_hot_upd,
                round(n_tup_hot_upd::numeric / greatest(n_tup_upd, 1), 4), n_dead_tup,
                pg_relation_size(relid) / 1024, pg_indexes_size(relid) / 1024
         FROM pg_stat_user_tables
         WHERE relname IN ('gemstone_election_leader', 'gemstone_election_candidate')
         ORDER BY relname DESC",
    );
    for line in told.lines() {
        let cells = line.replace('|', " | ");
        println!("| {:.0} s | {renewals} | {cells} |", after.as_secs_f64());
    }
}

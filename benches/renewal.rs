//! What a leader does all day: `elect` and `heartbeat`, on each database, alone.
//!
//! A last table sets the renewal beside the least of its database, in alternating rounds: on SQLite the same statements through the
//! bare C library with the same pragmas, on MariaDB and PostgreSQL one UPDATE by key.

// The bare C library is the other side of the SQLite row.
#![allow(unsafe_code)]

#[path = "support/bare_sqlite.rs"]
mod bare_sqlite;
mod support;

use std::time::Duration;

use criterion::Criterion;
use diesel::RunQueryDsl;
use diesel::backend::Backend;
use diesel::mysql::MysqlConnection;
use diesel::pg::PgConnection;
use diesel::prelude::*;
use diesel::query_builder::{AstPass, QueryFragment, QueryId};
use support::database::{ALL, Kind};
use support::load;
use uuid::Uuid;

fn main() {
    let mut criterion = support::criterion();
    calls(&mut criterion);
    criterion.final_summary();
    if support::testing() {
        return;
    }
    println!("\nrenewal by elect: medians of 7 alternating rounds, calls per second");
    for kind in ALL {
        beside_the_least(kind);
    }
}

fn calls(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("renewal");
    for kind in ALL {
        let database = kind.fresh();
        let election = database.election(1);
        let me = Uuid::new_v4();
        assert_eq!(election.elect(me, "x").unwrap(), me);
        let label = kind.label();
        support::bench(&mut group, &format!("elect/{label}"), 1, |_| {
            assert_eq!(election.elect(me, "x").unwrap(), me);
        });
        support::bench(&mut group, &format!("heartbeat/{label}"), 1, |_| {
            election.heartbeat(me, "x").unwrap();
        });
    }
    group.finish();
}

fn beside_the_least(kind: Kind) {
    let database = kind.fresh();
    let election = database.election(1);
    let me = Uuid::new_v4();
    election.elect(me, "x").unwrap();
    database.exec(
        "CREATE TABLE least (k INTEGER PRIMARY KEY, n INTEGER NOT NULL);
         INSERT INTO least VALUES (0, 0)",
    );
    if kind == Kind::Postgres {
        database.exec("GRANT ALL ON least TO leasehold");
    }
    let mut least: Box<dyn FnMut()> = match kind {
        Kind::Postgres => {
            let mut conn = PgConnection::establish(&database.url).unwrap();
            Box::new(move || assert_eq!(UpdateByKey.execute(&mut conn).unwrap(), 1))
        }
        Kind::MariaDb => {
            let mut conn = MysqlConnection::establish(&database.url).unwrap();
            Box::new(move || assert_eq!(UpdateByKey.execute(&mut conn).unwrap(), 1))
        }
        Kind::Sqlite => {
            let mut bare = bare_sqlite::Bare::open(&database.name);
            let id = me.to_string();
            Box::new(move || bare.renew("x", &id, 3600))
        }
    };
    let slice = support::measurement_time() / 6;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..7 {
        let ours = load::during(1, slice, |_| {
            assert_eq!(election.elect(me, "x").unwrap(), me);
        });
        rates[0].push(ours.per_second());
        rates[1].push(repeat(slice, &mut least));
    }
    let [ours, least] = rates.map(|rates| load::median(&rates));
    let label = kind.label();
    println!(
        "{label:<9} {ours:>8.0}   least {least:>8.0}   ratio {:.2}",
        ours / least
    );
}

fn repeat(time: Duration, work: &mut dyn FnMut()) -> f64 {
    let start = std::time::Instant::now();
    let mut count = 0.0;
    while start.elapsed() < time {
        work();
        count += 1.0;
    }
    count / start.elapsed().as_secs_f64()
}

/// One UPDATE by key, prepared once: one exchange and one commit.
struct UpdateByKey;

impl QueryId for UpdateByKey {
    type QueryId = UpdateByKey;
    const HAS_STATIC_QUERY_ID: bool = true;
}

impl<DB: Backend> QueryFragment<DB> for UpdateByKey {
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        out.push_sql("UPDATE least SET n = n + 1 WHERE k = 0");
        Ok(())
    }
}

impl<Conn> RunQueryDsl<Conn> for UpdateByKey {}

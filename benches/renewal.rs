//! What a leader does all day: `elect` and `heartbeat`, on each database, alone.
//!
//! A last table sets the renewal beside the least of its database, in alternating rounds: on SQLite the same statements through the
//! bare C library with the same pragmas, on MariaDB and PostgreSQL one UPDATE by key.

// The bare C library is the other side of the SQLite row.
#![allow(unsafe_code)]

#[path = "support/bare_sqlite.rs"]
mod bare_sqlite;
mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
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

const ROUNDS: usize = 21;

fn main() {
    let mut criterion = support::criterion();
    calls(&mut criterion);
    criterion.final_summary();
    if support::testing() {
        return;
    }
    println!(
        "\nrenewal by elect: medians of {ROUNDS} alternating rounds, calls per second; the ratio is of the two sides of a round"
    );
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
        let names = Names::new(kind);
        let label = kind.label();
        support::bench(&mut group, &format!("elect/{label}"), 1, |_| {
            assert_eq!(election.elect(me, names.next()).unwrap(), me);
        });
        support::bench(&mut group, &format!("heartbeat/{label}"), 1, |_| {
            election.heartbeat(me, names.next()).unwrap();
        });
    }
    group.finish();
}

/// The namespaces to renew in turn. SQLite writes nothing where a row stays as it is, and its instants are milliseconds: one
/// namespace alone would mostly be renewed without a commit.
struct Names {
    names: Vec<String>,
    turn: AtomicUsize,
}

impl Names {
    fn new(kind: Kind) -> Names {
        let count = if kind == Kind::Sqlite { 64 } else { 1 };
        Names {
            names: (0..count).map(|n| format!("ns-{n}")).collect(),
            turn: AtomicUsize::new(0),
        }
    }

    fn next(&self) -> &str {
        &self.names[self.turn.fetch_add(1, Ordering::Relaxed) % self.names.len()]
    }
}

fn beside_the_least(kind: Kind) {
    let database = kind.fresh();
    let election = database.election(1);
    let me = Uuid::new_v4();
    let names = Names::new(kind);
    for _ in &names.names {
        election.elect(me, names.next()).unwrap();
    }
    database.exec(
        "CREATE TABLE least (k INTEGER PRIMARY KEY, n INTEGER NOT NULL);
         INSERT INTO least VALUES (0, 0)",
    );
    if kind == Kind::Postgres {
        database.exec("GRANT ALL ON least TO leasehold");
    }
    let mut least: Box<dyn FnMut(&str)> = match kind {
        Kind::Postgres => {
            let mut conn = PgConnection::establish(&database.url).unwrap();
            Box::new(move |_| assert_eq!(UpdateByKey.execute(&mut conn).unwrap(), 1))
        }
        Kind::MariaDb => {
            let mut conn = MysqlConnection::establish(&database.url).unwrap();
            Box::new(move |_| assert_eq!(UpdateByKey.execute(&mut conn).unwrap(), 1))
        }
        Kind::Sqlite => {
            let mut bare = bare_sqlite::Bare::open(&database.name);
            let id = me.to_string();
            Box::new(move |ns| bare.renew(ns, &id, 3600))
        }
    };
    let slice = support::measurement_time() / 15;
    let mut rates = [Vec::new(), Vec::new()];
    for _ in 0..ROUNDS {
        rates[0].push(repeat(slice, || {
            assert_eq!(election.elect(me, names.next()).unwrap(), me);
        }));
        rates[1].push(repeat(slice, || least(names.next())));
    }
    let ratios: Vec<f64> = std::iter::zip(&rates[0], &rates[1])
        .map(|(ours, least)| ours / least)
        .collect();
    let [ours, least, ratio] = [&rates[0], &rates[1], &ratios].map(|rates| load::median(rates));
    let label = kind.label();
    println!("{label:<9} {ours:>8.0}   least {least:>8.0}   ratio {ratio:.2}");
}

fn repeat(time: Duration, mut work: impl FnMut()) -> f64 {
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

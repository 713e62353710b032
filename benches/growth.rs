//! How the cost of a call grows, on PostgreSQL: with the candidates of a namespace, with the namespaces, with the rows of the candidate
//! table. criterion draws the lines; the figures are printed as CSV too.

mod support;

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Throughput};
use support::database::{Database, Kind};
use support::load::{self, Measured, millis, quantile};
use uuid::Uuid;

fn main() {
    let mut criterion = support::criterion();
    let mut lines = vec!["growth,size,call,calls_per_second,p50_ms,p99_ms".to_owned()];
    let sizes = |sizes: &[usize], least: usize| -> Vec<usize> {
        let few = support::testing();
        let wanted = |size: &&usize| !few || **size <= least;
        sizes.iter().filter(wanted).copied().collect()
    };

    let mut group = criterion.benchmark_group("candidates on one namespace");
    group.sample_size(10);
    for size in sizes(&[1, 2, 4, 8, 16, 32, 64, 128], 4) {
        let database = Kind::Postgres.fresh();
        let election = database.election(size);
        let ids: Vec<Uuid> = (0..size).map(|_| Uuid::new_v4()).collect();
        election.elect(ids[0], "x").unwrap();
        let point = Point {
            growth: "candidates",
            size,
            clients: size,
            call: "elect",
        };
        lines.push(point.measure(&mut group, |client| {
            election.elect(ids[client], "x").unwrap();
        }));
    }
    group.finish();

    let mut group = criterion.benchmark_group("namespaces");
    group.sample_size(10);
    let database = Kind::Postgres.fresh();
    let election = database.election(1);
    let me = Uuid::new_v4();
    let mut led = 0;
    for size in sizes(&[1, 10, 100, 1_000, 10_000], 10) {
        for n in led..size {
            election.elect(me, format!("ns-{n}").as_str()).unwrap();
        }
        led = size;
        database.exec("ANALYZE");
        let turn = std::sync::atomic::AtomicUsize::new(0);
        let point = Point {
            growth: "namespaces",
            size,
            clients: 1,
            call: "elect",
        };
        lines.push(point.measure(&mut group, |_| {
            let turn = turn.fetch_add(7919, std::sync::atomic::Ordering::Relaxed);
            let ns = format!("ns-{}", turn % size);
            assert_eq!(election.elect(me, ns.as_str()).unwrap(), me);
        }));
    }
    group.finish();

    for call in ["elect", "is_leader"] {
        let mut group = criterion.benchmark_group(format!("rows of the candidate table/{call}"));
        group.sample_size(10);
        let database = Kind::Postgres.fresh();
        let mut rows = 0;
        for size in sizes(&[10, 100, 1_000, 10_000, 100_000, 1_000_000], 100) {
            // In two large namespaces; the caller stands alone in a third.
            database.fill("x", (size - rows) / 2);
            database.fill("elsewhere", (size - rows) / 2);
            rows = size;
            lines.push(in_a_crowd(&database, call, size).measure_in(&mut group, &database));
        }
        group.finish();
    }
    criterion.final_summary();
    if !support::testing() {
        println!("\n{}", lines.join("\n"));
    }
}

struct Point {
    growth: &'static str,
    size: usize,
    clients: usize,
    call: &'static str,
}

fn in_a_crowd(database: &Database, call: &'static str, size: usize) -> Point {
    database.exec("VACUUM ANALYZE gemstone_election_candidate");
    Point {
        growth: "rows",
        size,
        clients: 1,
        call,
    }
}

impl Point {
    fn measure_in(&self, group: &mut BenchmarkGroup<'_, WallTime>, database: &Database) -> String {
        let election = database.election(1);
        let me = Uuid::new_v4();
        let ns = format!("mine-{}", self.size);
        election.elect(me, ns.as_str()).unwrap();
        let elect = |_| assert_eq!(election.elect(me, ns.as_str()).unwrap(), me);
        let is_leader = |_| assert!(election.is_leader(me, ns.as_str()).unwrap());
        match self.call {
            "elect" => self.measure(group, elect),
            _ => self.measure(group, is_leader),
        }
    }

    fn measure(
        &self,
        group: &mut BenchmarkGroup<'_, WallTime>,
        call: impl Fn(usize) + Sync,
    ) -> String {
        let clients = self.clients;
        let mut seen = Measured::default();
        group.measurement_time(support::measurement_time().max(Duration::from_secs(1)));
        group.throughput(Throughput::Elements(clients as u64));
        group.bench_function(BenchmarkId::from_parameter(self.size), |bencher| {
            bencher.iter_custom(|calls| {
                let measured = load::calls(clients, calls, &call);
                let wall = measured.wall;
                seen.absorb(measured);
                wall
            });
        });
        let times = seen.times();
        format!(
            "{},{},{},{:.0},{:.3},{:.3}",
            self.growth,
            self.size,
            self.call,
            seen.per_second(),
            millis(quantile(&times, 0.5)),
            millis(quantile(&times, 0.99))
        )
    }
}

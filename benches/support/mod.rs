//! What the benchmarks stand on: throwaway databases, and load with the time of every call.

// Every benchmark compiles all of this and uses a part.
#![allow(dead_code)]

pub mod database;
pub mod load;
#[path = "../../tests/support/mod.rs"]
pub mod servers;

use std::env;
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput};
use load::Measured;

/// How long each benchmark is measured: `LEASEHOLD_BENCH_SECONDS`, 3 by default.
pub fn measurement_time() -> Duration {
    env::var("LEASEHOLD_BENCH_SECONDS").map_or(Duration::from_secs(3), |seconds| {
        let seconds = seconds.parse().ok().filter(|seconds| *seconds > 0.0);
        Duration::from_secs_f64(seconds.expect("LEASEHOLD_BENCH_SECONDS is a positive number"))
    })
}

/// Whether everything shall run once only, and nothing be measured: so under `cargo test`, which passes no `--bench`.
pub fn testing() -> bool {
    env::args().any(|argument| argument == "--test")
        || !env::args().any(|argument| argument == "--bench")
}

/// `many` when measuring, `few` when everything shall only run once.
pub fn many_or(many: usize, few: usize) -> usize {
    if testing() { few } else { many }
}

pub fn criterion() -> Criterion {
    Criterion::default()
        .sample_size(20)
        .measurement_time(measurement_time())
        .warm_up_time(Duration::from_millis(500))
        .configure_from_args()
}

/// Benchmarks `call`, made by `clients` threads at once; prints throughput, median and 99th percentile.
pub fn bench(
    group: &mut BenchmarkGroup<'_, WallTime>,
    name: &str,
    clients: usize,
    call: impl Fn(usize) + Sync,
) {
    let mut seen = Measured::default();
    group.throughput(Throughput::Elements(clients as u64));
    group.bench_function(name, |bencher| {
        bencher.iter_custom(|calls| {
            let measured = load::calls(clients, calls, &call);
            let wall = measured.wall;
            seen.absorb(measured);
            wall
        });
    });
    if !testing() && seen.count() > 0 {
        println!("{name}: {seen}\n");
    }
}

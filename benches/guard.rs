//! `LeaderGuard`: what `is_leader` costs, and what 10,000 guards of one `Election` cost on PostgreSQL.

mod support;

use std::fs;
use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, LeaderGuard};
use support::database::{Kind, postgres};
use support::load::{median, millis, quantile};
use support::servers::{process, wait_until};
use uuid::Uuid;

const PATIENCE: Duration = Duration::from_secs(300);
/// Long enough for a server that stands still during a beat.
const EXPIRE: Duration = Duration::from_secs(120);

fn main() {
    let mut criterion = support::criterion();
    let database = Kind::Postgres.fresh();
    let election = Election::builder(&database.url)
        .expire(EXPIRE)
        .build()
        .unwrap();
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    let tenure = guard.wait_until_leader(PATIENCE).expect("nobody else");
    let mut group = criterion.benchmark_group("guard");
    group.bench_function("is_leader", |b| b.iter(|| black_box(guard.is_leader())));
    group.bench_function("tenure.is_current", |b| {
        b.iter(|| black_box(tenure.is_current()))
    });
    group.finish();
    criterion.final_summary();
    guard.resign().unwrap();
    if !support::testing() {
        many(10_000);
    } else {
        many(20);
    }
}

fn many(count: usize) {
    let beat = Duration::from_secs(if support::testing() { 1 } else { 5 });
    let database = Kind::Postgres.fresh();
    let election = Election::builder(&database.url)
        .expire(EXPIRE)
        .build()
        .unwrap();
    let me = Uuid::new_v4();
    let memory = memory();
    let start = Instant::now();
    let guards: Vec<LeaderGuard> = (0..count)
        .map(|n| {
            let ns = format!("ns-{n}");
            let guard = LeaderGuard::builder(&election, me, &ns);
            guard.beat(beat).spawn().unwrap()
        })
        .collect();
    let spawned = start.elapsed();
    let all_lead = || guards.iter().all(LeaderGuard::is_leader);
    wait_until(PATIENCE, "all lead", all_lead);
    println!("\n{count} guards of one Election, a beat every {beat:?}");
    println!(
        "ramp-up         {:.0} ms to spawn, {:.0} ms until all lead: {:.0} leases a second",
        millis(spawned),
        millis(start.elapsed()),
        count as f64 / start.elapsed().as_secs_f64()
    );
    let memory = self::memory() - memory;
    println!("threads         {}", threads());
    println!(
        "extra memory    {memory} kB, {:.2} kB a guard",
        memory as f64 / count as f64
    );
    let watched = (2 * beat).max(Duration::from_secs(1));
    let before = transactions(&database.name);
    let cpu_before = cpu_ticks();
    thread::sleep(watched);
    let seconds = watched.as_secs_f64();
    println!(
        "transactions/s  {:.1} for {:.0} leases renewed a second, {:.1} % of a core in this process",
        (transactions(&database.name) - before) as f64 / seconds,
        count as f64 / beat.as_secs_f64(),
        (cpu_ticks() - cpu_before) as f64 / seconds
    );
    let rounds: Vec<Duration> = (0..support::many_or(5, 1))
        .map(|_| round(&database.name, beat, count))
        .collect();
    let figures: Vec<f64> = rounds.iter().map(|round| millis(*round)).collect();
    println!(
        "a round         {:.0} ms (median of {}), {:.0} ms at most; target < 1000 ms",
        median(&figures),
        rounds.len(),
        millis(quantile(&rounds, 1.0))
    );
    assert!(all_lead());
}

/// The time in which all leases are renewed once, one after another: the session of the heartbeat stands still until
/// all are due, and goes on.
fn round(database: &str, beat: Duration, count: usize) -> Duration {
    let ask = |sql: &str| postgres().exec_in(database, sql);
    let session = ask("SELECT pid FROM pg_stat_activity
         WHERE datname = current_database() AND query LIKE '%json_to_recordset%'
           AND pid <> pg_backend_pid()");
    let session = process::parse(&session).expect("the session of the heartbeat");
    process::pause(session);
    thread::sleep(beat + Duration::from_millis(200));
    let began = ask("SELECT clock_timestamp()");
    process::resume(session);
    let renewed =
        format!("SELECT count(*) FROM gemstone_election_leader WHERE updated_at > '{began}'");
    wait_until(PATIENCE, "all are renewed", || {
        ask(&renewed) == count.to_string()
    });
    // By the first renewal of each: those that beat again meanwhile are later.
    let took = ask(&format!(
        "SELECT (extract(epoch FROM max(updated_at) - timestamptz '{began}') * 1000000)::bigint
         FROM gemstone_election_leader"
    ));
    let first_pass = Duration::from_micros(took.parse().expect("microseconds"));
    assert!(first_pass < beat, "the round ran into the next beat");
    first_pass
}

fn transactions(database: &str) -> i64 {
    let sql = "SELECT pg_stat_clear_snapshot(); SELECT xact_commit FROM pg_stat_database
               WHERE datname = current_database()";
    let told = postgres().exec_in(database, sql);
    told.trim().parse().expect("a count")
}

/// The threads of the library in this process.
fn threads() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let names = tasks.map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with("leasehold-")).count()
}

/// Resident kilobytes of this process.
fn memory() -> i64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:"));
    line.unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse()
        .unwrap()
}

/// Hundredths of seconds of a core that this process has used.
fn cpu_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(") ").unwrap().1;
    let fields: Vec<&str> = after_name.split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

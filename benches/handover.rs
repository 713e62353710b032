//! How long a namespace is without a leader: after the leader resigned, and after kill -9 of its process.
//!
//! The first is measured from the call of `resign`, the second from the signal; both until the follower's `is_leader`. No statement is
//! timed here, so there is no criterion: the figures are medians and 99th percentiles of whole hand-overs.

mod support;

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold::election::{Election, LeaderGuard};
use support::database::{ALL, Database, Kind};
use support::load::{millis, quantile};
use uuid::Uuid;

/// Makes this program the leader that is killed: the URL of its database.
const LEADER: &str = "LEASEHOLD_BENCH_LEADER";
const EXPIRE: Duration = Duration::from_secs(1);
const NS: &str = "handed-over";
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    if let Ok(url) = env::var(LEADER) {
        return lead_until_killed(&url);
    }
    let rounds = support::many_or(30, 1);
    println!("| database | hand-over | p50 ms | p99 ms | target ms |");
    println!("|---|---|---|---|---|");
    for kind in ALL {
        let database = kind.fresh();
        let beat = EXPIRE / 3;
        let target = match kind {
            Kind::Postgres => Duration::from_millis(50),
            _ => beat,
        };
        report(kind, "resign", &resigned(&database, rounds), target);
        let times = killed(&database, rounds);
        let target = EXPIRE + Duration::from_millis(250);
        report(kind, "kill -9", &times, target);
    }
}

fn report(kind: Kind, what: &str, times: &[Duration], target: Duration) {
    println!(
        "| {} | {what} | {:.1} | {:.1} | ≤ {:.0} |",
        kind.label(),
        millis(quantile(times, 0.5)),
        millis(quantile(times, 0.99)),
        millis(target)
    );
}

fn election(url: &str) -> Election {
    Election::builder(url).expire(EXPIRE).build().unwrap()
}

/// Two elections in turn, so that each has a heartbeat and a connection of its own.
fn resigned(database: &Database, rounds: usize) -> Vec<Duration> {
    let elections = [election(&database.url), election(&database.url)];
    let stand = |turn: usize| {
        LeaderGuard::spawn(&elections[turn % 2], Uuid::new_v4(), NS).expect("a guard")
    };
    let mut leader = stand(0);
    leader.wait_until_leader(PATIENCE).expect("nobody else");
    let mut times = Vec::new();
    for round in 1..=rounds {
        let follower = stand(round);
        let known = || election_knows(&elections[0], 2);
        support::servers::wait_until(PATIENCE, "the follower has looked", known);
        // It hears of a release from its first look on.
        std::thread::sleep(Duration::from_millis(20));
        let start = Instant::now();
        leader.resign().expect("released");
        follower.wait_until_leader(PATIENCE).expect("it follows");
        times.push(start.elapsed());
        leader = follower;
    }
    times
}

fn election_knows(election: &Election, candidates: usize) -> bool {
    election.list_candidates(NS).unwrap().len() >= candidates
}

fn killed(database: &Database, rounds: usize) -> Vec<Duration> {
    let election = election(&database.url);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let mut leader = Command::new(env::current_exe().unwrap())
            .env(LEADER, &database.url)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut told = BufReader::new(leader.stdout.take().unwrap());
        told.read_line(&mut line).unwrap();
        assert_eq!(line, "leads\n");
        let follower = LeaderGuard::spawn(&election, Uuid::new_v4(), NS).unwrap();
        let follows = || election.list_candidates(NS).unwrap().len() >= 2;
        support::servers::wait_until(PATIENCE, "the follower has looked", follows);
        let start = Instant::now();
        leader.kill().unwrap();
        follower.wait_until_leader(PATIENCE).expect("it follows");
        times.push(start.elapsed());
        leader.wait().unwrap();
        follower.resign().unwrap();
    }
    times
}

fn lead_until_killed(url: &str) {
    let guard = LeaderGuard::spawn(&election(url), Uuid::new_v4(), NS).unwrap();
    guard.wait_until_leader(PATIENCE).expect("nobody else");
    println!("leads");
    loop {
        std::thread::park();
    }
}

//! The overlap checker: many processes write down when they believed they led, faults are thrown
//! at them, and no two intervals of one namespace may overlap and no term may repeat.

use std::collections::{BTreeSet, HashMap};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, LeaderGuard};
use rustix::time::{ClockId, clock_gettime};
use uuid::Uuid;

use crate::PATIENCE;
use crate::database::{Database, Fresh};
use crate::support::child::{self, Role};
use crate::support::{MariaDb, Postgres, Proxy};

on_every_database![no_two_processes_ever_believe_at_once];

const LEASE: Duration = Duration::from_secs(1);
/// A belief that lasts is told in pieces, so that little of it is lost with a process.
const REPORT: Duration = Duration::from_millis(100);
const NAMESPACES: [&str; 2] = ["x", "y"];

/// A time in which one process answered that it led, by a clock that all processes share.
#[derive(Debug, Clone, Copy)]
struct Belief {
    term: i64,
    process: usize,
    first: u128,
    last: u128,
}

fn now() -> u128 {
    let now = clock_gettime(ClockId::Boottime);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32).as_nanos()
}

/// Campaigns in every namespace and reports each interval in which it believed it led.
#[test]
fn role_believes() {
    let Some(parent) = child::role("overlap::role_believes") else {
        return;
    };
    let url = std::env::var("URL").expect("URL");
    let election = loop {
        match Election::builder(&url).expire(LEASE).build() {
            Ok(election) => break election,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    };
    let guards =
        NAMESPACES.map(|ns| LeaderGuard::spawn(&election, Uuid::new_v4(), ns).expect("spawn"));
    parent.say("ready");
    let mut open: [Option<(i64, u128, u128)>; NAMESPACES.len()] = [None; NAMESPACES.len()];
    loop {
        for (index, guard) in guards.iter().enumerate() {
            let before = now();
            let term = guard.tenure().map(|tenure| tenure.term().get());
            let leads = guard.is_leader();
            let after = now();
            match (&mut open[index], term.filter(|_| leads)) {
                (Some((current, first, last)), Some(term))
                    if *current == term && before.saturating_sub(*first) < REPORT.as_nanos() =>
                {
                    *last = before;
                }
                (belief, term) => {
                    if let Some((term, first, last)) = belief.take() {
                        parent.say(format!("{index} {term} {first} {last}"));
                    }
                    *belief = term.map(|term| (term, after, before.max(after)));
                }
            }
        }
        thread::sleep(Duration::from_micros(300));
    }
}

fn check(beliefs: &[Vec<Belief>]) {
    for (ns, beliefs) in NAMESPACES.iter().zip(beliefs) {
        let mut terms = HashMap::new();
        for belief in beliefs {
            let holder = terms.entry(belief.term).or_insert(belief.process);
            assert_eq!(
                *holder, belief.process,
                "term {} of {ns} was two processes'",
                belief.term
            );
        }
        let mut sorted = beliefs.clone();
        sorted.sort_by_key(|belief| belief.first);
        for two in sorted.windows(2) {
            assert!(
                two[0].last <= two[1].first || two[0].process == two[1].process,
                "{ns}: {:?} and {:?} overlap by {} us",
                two[0],
                two[1],
                (two[0].last - two[1].first) / 1000
            );
            assert!(two[0].term <= two[1].term, "{ns}: {two:?}");
        }
    }
}

fn no_two_processes_ever_believe_at_once<C: Database>() {
    const PROCESSES: usize = 4;
    let seconds = std::env::var("LEASEHOLD_TEST_SECONDS").map_or(20, |text| text.parse().unwrap());
    let (server, fresh) = Server::start::<C>();
    let proxies: Vec<(Option<Proxy>, String)> =
        (0..PROCESSES).map(|_| server.reach(&fresh.url)).collect();
    let start = |process: usize| {
        let mut command = child::in_child("overlap::role_believes");
        let role = Role::spawn(command.env("URL", &proxies[process].1));
        assert_eq!(role.line(PATIENCE), "ready");
        role
    };
    let mut roles: Vec<Role> = (0..PROCESSES).map(start).collect();
    let mut beliefs = vec![Vec::new(); NAMESPACES.len()];
    let mut generation = [0; PROCESSES];
    let until = Instant::now() + Duration::from_secs(seconds);
    let mut faults = 0_usize;
    // Chance may spare a leader for long; the faults go on until every namespace has changed hands.
    while Instant::now() < until
        || (tenures(&beliefs).iter().any(|&tenures| tenures < 3)
            && Instant::now() < until + PATIENCE)
    {
        for (process, role) in roles.iter().enumerate() {
            collect(
                role,
                process + PROCESSES * generation[process],
                &mut beliefs,
            );
        }
        let chance = Uuid::new_v4().as_u128();
        // Every second fault is for who leads, in one namespace or the other.
        let beliefs_of = &beliefs[(chance as usize >> 6) % NAMESPACES.len()];
        let leader = beliefs_of
            .last()
            .map(|belief| belief.process % PROCESSES)
            .filter(|_| chance & 0x80 == 0);
        let process = leader.unwrap_or((chance as usize >> 8) % PROCESSES);
        let pause = Duration::from_millis(200 + (chance as u64 >> 16) % 1800);
        match chance % 8 {
            0 | 1 => {
                roles[process].pause();
                thread::sleep(pause);
                roles[process].resume();
            }
            2 => {
                collect(
                    &roles[process],
                    process + PROCESSES * generation[process],
                    &mut beliefs,
                );
                roles[process].kill();
                generation[process] += 1;
                roles[process] = start(process);
            }
            3 | 4 => proxies[process].0.iter().for_each(|proxy| {
                proxy.go_dark();
                thread::sleep(pause);
                proxy.heal();
            }),
            5 => proxies[process].0.iter().for_each(|proxy| {
                proxy.cut();
                thread::sleep(pause / 4);
                proxy.heal();
            }),
            6 => proxies[process].0.iter().for_each(|proxy| {
                proxy.delay_replies(pause / 2);
                thread::sleep(pause);
                proxy.heal();
            }),
            _ => server.disturb(),
        }
        faults += 1;
    }
    // A calm end: somebody leads again.
    thread::sleep(3 * LEASE);
    for (process, role) in roles.iter().enumerate() {
        collect(
            role,
            process + PROCESSES * generation[process],
            &mut beliefs,
        );
    }
    let tenures = tenures(&beliefs);
    assert!(
        faults >= 5 && tenures.iter().all(|&tenures| tenures >= 3),
        "{faults} faults, {tenures:?} tenures"
    );
    check(&beliefs);
    println!("{faults} faults, {tenures:?} tenures, no two overlap");
}

/// How many tenures were seen in each namespace.
fn tenures(beliefs: &[Vec<Belief>]) -> Vec<usize> {
    let terms = |beliefs: &Vec<Belief>| {
        let terms: BTreeSet<i64> = beliefs.iter().map(|belief| belief.term).collect();
        terms.len()
    };
    beliefs.iter().map(terms).collect()
}

fn collect(role: &Role, process: usize, beliefs: &mut [Vec<Belief>]) {
    while let Some(line) = role.try_line(Duration::ZERO) {
        let numbers: Vec<u128> = line
            .split(' ')
            .map(|part| part.parse().expect(&line))
            .collect();
        let [ns, term, first, last] = numbers[..] else {
            panic!("{line}")
        };
        let term = i64::try_from(term).expect("a term");
        beliefs[ns as usize].push(Belief {
            term,
            process,
            first,
            last,
        });
    }
}

/// A server of this test alone, to be restarted at will; SQLite has none.
enum Server {
    Postgres(Postgres),
    MariaDb(MariaDb),
    None,
}

impl Server {
    fn start<C: Database>() -> (Server, Fresh) {
        let server = match (C::HOLD.contains("FOR UPDATE"), C::LEVELS.len()) {
            (true, 3) => Server::Postgres(Postgres::start()),
            (true, _) => Server::MariaDb(MariaDb::start()),
            _ => Server::None,
        };
        let fresh = match &server {
            Server::Postgres(server) => Fresh::at(server.fresh_database()),
            Server::MariaDb(server) => Fresh::at(server.fresh_database()),
            Server::None => Fresh::without_tables::<C>(),
        };
        drop(fresh.election());
        (server, fresh)
    }

    fn reach(&self, url: &str) -> (Option<Proxy>, String) {
        if matches!(self, Server::None) {
            return (None, url.to_owned());
        }
        let (proxy, url) = Proxy::in_front_of(url);
        (Some(proxy), url)
    }

    fn disturb(&self) {
        match self {
            Server::Postgres(server) => server.restart(),
            Server::MariaDb(server) => {
                server.terminate_all_sessions();
            }
            Server::None => {}
        }
    }
}

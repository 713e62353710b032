//! Our side, in a process of its own so that it can be pinned.

use std::env;
use std::process::Command;
use std::time::Duration;

use leasehold::election::Election;
use uuid::Uuid;

use crate::support::load::{self, millis, quantile};

/// The mode in which this program is the client.
pub const LOAD: &str = "load";

/// The client process for `work`, to be run with arguments that [`serve`] reads.
pub fn command(work: &str, url: &str, clients: usize, time: Duration) -> Command {
    let mut command = Command::new(env::current_exe().expect("this program"));
    command.args([LOAD, work, url, &clients.to_string()]);
    command.arg(time.as_secs_f64().to_string());
    command
}

/// Makes the calls and prints: calls per second, p50 and p99 in milliseconds, of all and of the leader alone.
pub fn serve(arguments: &[String]) {
    let [work, url, clients, seconds] = arguments else {
        panic!("load WORK URL CLIENTS SECONDS");
    };
    let clients: usize = clients.parse().expect("a number of clients");
    let time = Duration::from_secs_f64(crate::number(seconds));
    let election = Election::builder(url)
        .expire(Duration::from_secs(3600))
        .pool_size(u32::try_from(clients).expect("few"))
        .build()
        .expect("the server answers");
    let ids: Vec<Uuid> = (0..clients).map(|_| Uuid::new_v4()).collect();
    let ns = Uuid::new_v4().to_string();
    let call = |client: usize| one_call(&election, work, &ns, ids[client]);
    // Client 0 leads; connections and prepared statements exist before the clock starts.
    for _ in 0..20 {
        call(0);
    }
    load::during(clients, Duration::from_millis(100), call);
    let measured = load::during(clients, time, call);
    let all = measured.times();
    let leader = &measured.by_client[0];
    println!(
        "{} {} {} {} {} {}",
        measured.per_second(),
        millis(quantile(&all, 0.5)),
        millis(quantile(&all, 0.99)),
        leader.len() as f64 / measured.wall.as_secs_f64(),
        millis(quantile(leader, 0.5)),
        millis(quantile(leader, 0.99)),
    );
}

fn one_call(election: &Election, work: &str, ns: &str, me: Uuid) {
    match work {
        "elect" => drop(election.elect(me, ns).expect("a leader")),
        // Each client leads four namespaces of its own.
        "elect_in_four" => {
            use std::cell::Cell;
            thread_local!(static TURN: Cell<usize> = const { Cell::new(0) });
            let turn = TURN.replace(TURN.get() + 1) % 4;
            let ns = format!("{me}-{turn}");
            assert_eq!(election.elect(me, ns.as_str()).expect("a leader"), me);
        }
        "heartbeat" => election.heartbeat(me, ns).expect("registered"),
        "is_leader" => drop(election.is_leader(me, ns).expect("an answer")),
        "leader" => drop(election.leader(ns).expect("an answer")),
        "list" => assert_eq!(election.list_candidates("crowd").unwrap().len(), CROWD),
        _ => panic!("no such work: {work}"),
    }
}

pub const CROWD: usize = 100_000;

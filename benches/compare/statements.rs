//! What each call sends, from the server's log: statements, and the exchanges that carry them.

use std::time::Duration;

use leasehold::election::{Election, LeaderGuard};
use uuid::Uuid;

use crate::support::servers::{Options, Postgres};

const BEAT: Duration = Duration::from_millis(500);

pub fn print() {
    let server = Postgres::start_with(Options {
        fsync: true,
        extra: &[
            "log_min_duration_statement = 0",
            "log_line_prefix = ''",
            "lc_messages = 'C'",
        ],
    });
    let election = Election::builder(&server.socket_url_of("leasehold"))
        .pool_size(1)
        .build()
        .expect("the server answers");
    let [leader, follower] = [(); 2].map(|()| Uuid::new_v4());
    let calls: [(&str, &dyn Fn()); 7] = [
        ("elect, the leader's renewal", &|| {
            assert_eq!(election.elect(leader, "x").unwrap(), leader);
        }),
        ("elect, a follower's", &|| {
            assert_eq!(election.elect(follower, "x").unwrap(), leader);
        }),
        ("heartbeat", &|| election.heartbeat(follower, "x").unwrap()),
        ("is_leader", &|| {
            assert!(election.is_leader(leader, "x").unwrap());
        }),
        ("leader", &|| {
            assert!(election.leader("x").unwrap().is_some())
        }),
        ("list_candidates", &|| {
            assert_eq!(election.list_candidates("x").unwrap().len(), 2);
        }),
        ("elect after unregister_candidate", &|| {
            election.unregister_candidate(leader, "x").unwrap();
            assert_eq!(election.elect(leader, "x").unwrap(), leader);
        }),
    ];
    println!("| call | exchanges | executed |");
    println!("|---|---|---|");
    for (name, call) in calls {
        print_row(&server, name, call);
    }
    let guard = LeaderGuard::builder(&election, leader, "guarded").beat(BEAT);
    let guard = guard.spawn().expect("the settings are right");
    guard.wait_until_leader(10 * BEAT).expect("nobody else");
    print_row(&server, "a guard's beat", &|| {
        let seen = server.log().len();
        while server.log().len() == seen {
            std::thread::sleep(BEAT / 50);
        }
        // All of this beat, and nothing of the next.
        std::thread::sleep(BEAT / 2);
    });
}

fn print_row(server: &Postgres, name: &str, call: &dyn Fn()) {
    // By then a handle knows what to expect, and the statements for it are prepared.
    for _ in 0..3 {
        call();
    }
    let seen = server.log().len();
    call();
    let log = server.log().split_off(seen);
    let told: Vec<&str> = log.lines().filter_map(message).collect();
    // A parse that is told by itself was an exchange of its own; a bind and its execute are one.
    let exchanges = told.iter().filter(|told| !told.starts_with("bind")).count();
    let executed: Vec<&str> = told.iter().copied().filter_map(executed).collect();
    println!("| {name} | {exchanges} | {} |", executed.join("; "));
}

/// `duration: 0.123 ms  execute s1: UPDATE …`, without the duration.
fn message(line: &str) -> Option<&str> {
    let told = line.trim_start().strip_prefix("LOG:")?.trim_start();
    told.strip_prefix("duration: ")?
        .split_once("ms")
        .map(|(_, told)| told.trim_start())
}

fn executed(told: &str) -> Option<&str> {
    let (kind, statement) = told.split_once(": ")?;
    let runs = kind.starts_with("execute") || kind == "statement";
    runs.then(|| {
        statement
            .split(['\n', '('])
            .next()
            .unwrap_or(statement)
            .trim()
    })
}

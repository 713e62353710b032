//! The database goes dark, or the program stands still: nothing of the command outlives the lease.

use std::time::{Duration, Instant};

use leasehold::election::Election;

use crate::database::{Database, Fresh};
use crate::running::{Mark, PATIENCE, Running, leasehold};
use crate::support::process::{self, Signal};
use crate::support::{Proxy, wait_until};

on_every_database![
    nothing_of_the_command_outlives_a_lease_that_cannot_be_renewed,
    nothing_of_the_command_outlives_the_lease_of_a_stopped_program,
    a_command_that_leads_no_more_is_killed_at_once,
    it_campaigns_again_after_a_loss,
    told_to_end_in_the_dark_it_ends_in_time,
    told_to_end_before_it_is_connected_it_ends_in_time,
];

const LEASE: Duration = Duration::from_secs(3);

/// Ignores SIGTERM; has children in the background, in a session of their own, and stopped.
const STUBBORN: &str =
    r#"trap "" TERM; SLEEP & setsid SLEEP & SLEEP & sleep 0.3; kill -STOP $!; SLEEP"#;

/// A way to the database that can be closed without anybody being told.
struct Way<C: Database> {
    fresh: Fresh,
    url: String,
    proxy: Option<Proxy>,
    lock: Option<C>,
}

impl<C: Database> Way<C> {
    fn new() -> Way<C> {
        let fresh = Fresh::new::<C>();
        let (proxy, url) = match fresh.url.contains('@') {
            true => {
                let (proxy, url) = Proxy::in_front_of(&fresh.url);
                (Some(proxy), url)
            }
            false => (None, fresh.url.clone()),
        };
        Way {
            fresh,
            url,
            proxy,
            lock: None,
        }
    }

    /// A file has no network; there, a writer that does not end has the same effect.
    fn go_dark(&mut self) {
        match &self.proxy {
            Some(proxy) => proxy.go_dark(),
            None => {
                let mut lock = self.fresh.connect::<C>();
                lock.run("PRAGMA busy_timeout = 30000");
                lock.hold_row("x");
                self.lock = Some(lock);
            }
        }
    }

    fn heal(&mut self) {
        self.lock = None;
        if let Some(proxy) = &self.proxy {
            proxy.heal();
        }
    }

    fn run(&self, more: &[&str], script: &str) -> Running {
        let mut command = leasehold(&self.url);
        command
            .args(["run", "--ns", "x", "--expire", "3s"])
            .args(more);
        Running::start(command.args(["--", "sh", "-c", script]))
    }

    /// Waits for the end of the lease, as the database has it, and says how long it took.
    #[track_caller]
    fn wait_for_the_end_of_the_lease(&self) -> Duration {
        let election: Election = self.fresh.election();
        let began = Instant::now();
        wait_until(PATIENCE, "the lease has ended", || {
            election.leader("x").unwrap().is_none()
        });
        began.elapsed()
    }
}

/// F26
fn nothing_of_the_command_outlives_a_lease_that_cannot_be_renewed<C: Database>() {
    let mut way = Way::<C>::new();
    let mark = Mark::new();
    let mut running = way.run(&["--once"], &mark.script(STUBBORN));
    mark.becomes(4);
    way.go_dark();
    let took = way.wait_for_the_end_of_the_lease();
    assert_eq!(mark.alive(), 0, "the lease has ended, after {took:?}");
    let (status, err) = running.end(PATIENCE);
    assert_eq!(status.code(), Some(4), "{err}");
    assert!(err.contains("was lost"), "{err}");
}

fn nothing_of_the_command_outlives_the_lease_of_a_stopped_program<C: Database>() {
    let way = Way::<C>::new();
    let mark = Mark::new();
    let mut running = way.run(&["--once"], &mark.script(STUBBORN));
    mark.becomes(4);
    process::pause(running.pid());
    way.wait_for_the_end_of_the_lease();
    assert_eq!(mark.alive(), 0);
    process::resume(running.pid());
    assert_eq!(running.end(PATIENCE).0.code(), Some(4));
}

fn a_command_that_leads_no_more_is_killed_at_once<C: Database>() {
    let way = Way::<C>::new();
    let mark = Mark::new();
    let running = way.run(
        &["--id", "6f3c0000-0000-4000-8000-000000000001"],
        &mark.script(STUBBORN),
    );
    mark.becomes(4);
    let election = way.fresh.election();
    let leader = election
        .leader("x")
        .unwrap()
        .expect("a leader")
        .candidate_id;
    election.unregister_candidate(leader, "x").unwrap();
    let successor = uuid::Uuid::new_v4();
    assert_eq!(election.elect(successor, "x").unwrap(), successor);
    // With the next beat, a fifth of the lease away.
    let told = Instant::now();
    mark.becomes(0);
    assert!(told.elapsed() < LEASE / 2, "{:?}", told.elapsed());
    drop(running);
}

fn it_campaigns_again_after_a_loss<C: Database>() {
    let mut way = Way::<C>::new();
    let running = way.run(&[], "echo $LEASEHOLD_TERM; exec sleep 1000");
    assert_eq!(running.line(), "1");
    way.go_dark();
    way.wait_for_the_end_of_the_lease();
    way.heal();
    assert_eq!(running.line(), "2");
    running.signal(Signal::TERM);
}

/// F24
fn told_to_end_in_the_dark_it_ends_in_time<C: Database>() {
    let mut way = Way::<C>::new();
    let mark = Mark::new();
    // It ends well when told to, and still the program must not say so.
    let mut running = way.run(
        &[],
        &mark.script("trap 'kill $!; exit 0' TERM; SLEEP & wait"),
    );
    mark.becomes(1);
    way.go_dark();
    running.signal(Signal::TERM);
    let (status, err) = running.end(Duration::from_secs(3));
    assert_eq!((status.code(), mark.alive()), (Some(3), 0), "{err}");
    assert!(
        err.contains("given up") && err.contains("ends by itself"),
        "{err}"
    );
}

fn told_to_end_before_it_is_connected_it_ends_in_time<C: Database>() {
    let mut way = Way::<C>::new();
    let blocked = way.proxy.is_some();
    way.go_dark();
    let mut running = way.run(&[], "echo ran");
    // As soon as signals are blocked they are messages; before, the default does the same.
    let status = format!("/proc/{}/status", running.pid());
    wait_until(PATIENCE, "signals are blocked", || {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        text.lines()
            .any(|line| line.starts_with("SigBlk:") && !line.ends_with("0000000000000000"))
    });
    running.signal(Signal::TERM);
    let (status, err) = running.end(Duration::from_secs(3));
    assert!(
        status.code().is_some_and(|code| code != 0),
        "{status:?} {err}"
    );
    assert!(
        !blocked || err.contains("before the database answered"),
        "{err}"
    );
}

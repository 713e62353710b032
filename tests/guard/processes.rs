//! Whole processes are stopped, killed, forked.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, Event, LeaderGuard};
use rustix::process::Signal;
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::support::child::{self, Role};
use crate::{PATIENCE, must_lead};

on_every_database![
    a_process_that_was_stopped_past_its_lease_knows_it_at_once,
    a_killed_leader_is_followed_at_the_expiry,
    two_processes_with_one_id_never_lead_together,
    the_stale_leaders_write_is_always_refused,
];

const LEASE: Duration = Duration::from_secs(1);

fn candidate(fresh: &Fresh, id: Uuid) -> Role {
    let mut command = child::in_child("processes::role_leads_and_answers");
    Role::spawn(command.env("URL", &fresh.url).env("ID", id.to_string()))
}

fn boot_time() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

/// Answers questions about its guard, one a line.
#[test]
fn role_leads_and_answers() {
    let Some(parent) = child::role("processes::role_leads_and_answers") else {
        return;
    };
    let var = |name| std::env::var(name).expect(name);
    let election = Election::builder(&var("URL"))
        .expire(LEASE)
        .build()
        .expect("connect");
    let guard =
        LeaderGuard::spawn(&election, var("ID").parse().expect("an id"), "x").expect("spawn");
    let events = guard.events();
    loop {
        match parent.hear().as_str() {
            "wait" => parent.say(guard.wait_until_leader(PATIENCE).is_some()),
            "is_leader" => parent.say(guard.is_leader()),
            "losses" => {
                let lost = events
                    .try_iter()
                    .filter(|event| matches!(event, Event::Lost { .. }));
                parent.say(lost.count());
            }
            // Stops itself between a true answer and the next, like a process that is paused.
            "stop when leading" => {
                guard.wait_until_leader(PATIENCE).expect("leadership");
                parent.say("stopping");
                let mut last = boot_time();
                rustix::process::kill_process(rustix::process::getpid(), Signal::STOP)
                    .expect("stop");
                // The stop takes effect a little later; then time jumps between two readings.
                loop {
                    let now = boot_time();
                    if now - last >= LEASE {
                        break;
                    }
                    last = now;
                }
                parent.say(guard.is_leader());
            }
            _ => return,
        }
    }
}

/// F7, F9
fn a_process_that_was_stopped_past_its_lease_knows_it_at_once<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
    let election = fresh.election_with(LEASE);
    let mut stopped = candidate(&fresh, a);
    stopped.tell("stop when leading");
    assert_eq!(stopped.line(PATIENCE), "stopping");
    let successor = LeaderGuard::builder(&fresh.election_with(Duration::from_secs(30)), b, "x")
        .spawn()
        .unwrap();
    must_lead(&successor);
    let conn = &mut fresh.connect::<C>();
    let before = conn.leader_bytes("x");
    stopped.resume();
    assert_eq!(stopped.line(PATIENCE), "false", "the very first answer");
    thread::sleep(LEASE);
    assert_eq!(conn.leader_bytes("x"), before);
    stopped.tell("losses");
    assert_eq!(stopped.line(PATIENCE), "1");
    successor.resign().unwrap();
    stopped.tell("wait");
    assert_eq!(stopped.line(PATIENCE), "true", "an ordinary new campaign");
    assert_eq!(election.leader("x").unwrap().unwrap().candidate_id, a);
}

/// F24: free at the expiry, not later
fn a_killed_leader_is_followed_at_the_expiry<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let mut killed = candidate(&fresh, Uuid::new_v4());
    killed.tell("wait");
    assert_eq!(killed.line(PATIENCE), "true");
    let follower = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    thread::sleep(LEASE / 2);
    killed.kill();
    let dead = Instant::now();
    must_lead(&follower);
    assert!(
        dead.elapsed() < LEASE + Duration::from_millis(750),
        "{:?}",
        dead.elapsed()
    );
}

/// F8
fn two_processes_with_one_id_never_lead_together<C: Database>() {
    let fresh = Fresh::new::<C>();
    let id = Uuid::new_v4();
    fresh.election();
    let mut both = [candidate(&fresh, id), candidate(&fresh, id)];
    let until = Instant::now() + 4 * LEASE;
    let mut led = 0;
    while Instant::now() < until {
        // Asked one after the other: both true would mean that one of them was wrong.
        both.iter_mut().for_each(|role| role.tell("is_leader"));
        let answers = both.each_ref().map(|role| role.line(PATIENCE) == "true");
        assert_ne!(answers, [true, true]);
        led += usize::from(answers != [false, false]);
    }
    assert!(led > 0);
}

/// A stale leader wakes up and tries to write what the new leader has written meanwhile.
fn the_stale_leaders_write_is_always_refused<C: Database>() {
    let rounds: i64 =
        std::env::var("LEASEHOLD_TEST_ROUNDS").map_or(200, |rounds| rounds.parse().unwrap());
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(Duration::from_secs(60));
    let conn = &mut fresh.connect::<C>();
    conn.run("CREATE TABLE work (term BIGINT, writer INT)");
    let mut refused = 0;
    for round in 0..rounds {
        let ns = format!("round {round}");
        let (old, new) = [(); 2].map(|()| Uuid::new_v4()).into();
        let stale = LeaderGuard::spawn(&election, old, &ns).unwrap();
        must_lead(&stale);
        conn.lapse(&ns);
        let fresh_leader = LeaderGuard::spawn(&election, new, &ns).unwrap();
        must_lead(&fresh_leader);
        for (guard, writer) in [(&fresh_leader, 2), (&stale, 1)] {
            let written = guard.transaction(conn, |conn| {
                conn.run(&format!("INSERT INTO work VALUES ({round}, {writer})"));
                Ok::<_, leasehold::election::ElectionError>(())
            });
            refused += i64::from(written.is_err());
        }
    }
    let stale = conn.number("SELECT count(*) AS value FROM work WHERE writer = 1");
    let written = conn.number("SELECT count(*) AS value FROM work WHERE writer = 2");
    assert_eq!((stale, written, refused), (0, rounds, rounds));
}

/// S5: a forked child has no heartbeat.
#[cfg(feature = "sqlite")]
#[test]
fn a_forked_child_does_not_lead() {
    let dir = crate::support::Directory::new();
    let url = format!("sqlite:{}", dir.path().join("x.db").display());
    let role = Role::spawn(child::in_child("processes::role_forks").env("URL", url));
    let lines = [role.line(PATIENCE), role.line(PATIENCE)];
    assert_eq!(lines, ["parent true", "child false"]);
}

#[cfg(feature = "sqlite")]
#[test]
#[allow(unsafe_code)]
fn role_forks() {
    let Some(parent) = child::role("processes::role_forks") else {
        return;
    };
    let election = Election::connect(&std::env::var("URL").unwrap()).unwrap();
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    // SAFETY: the child asks one question that takes no lock, and ends without running anything.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = if guard.is_leader() { 1 } else { 2 };
        // SAFETY: as above.
        unsafe { libc::_exit(code) };
    }
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    assert_eq!(unsafe { libc::waitpid(pid, &mut status, 0) }, pid);
    parent.say(format!("parent {}", guard.is_leader()));
    parent.say(format!("child {}", libc::WEXITSTATUS(status) == 1));
    parent.wait_for_the_end();
}

//! Signals to the program, and to the warden of its command.

use std::time::{Duration, Instant};

use crate::database::{Database, Fresh};
use crate::running::{Mark, PATIENCE, Running, leasehold};
use crate::support::process::{self, Pid, Signal};
use crate::support::wait_until;

on_every_database![
    a_signal_frees_the_row_within_a_second_and_leaves_no_orphan,
    a_signal_ends_one_who_waits,
    a_killed_program_leaves_nothing_behind,
];

/// F24, F26
fn a_signal_frees_the_row_within_a_second_and_leaves_no_orphan<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    for (signal, code) in [
        (Signal::TERM, 143),
        (Signal::INT, 130),
        (Signal::QUIT, 131),
        (Signal::HUP, 129),
    ] {
        let mark = Mark::new();
        let mut command = leasehold(&fresh.url);
        command.args([
            "run",
            "--ns",
            "x",
            "--",
            "sh",
            "-c",
            &mark.script("SLEEP & setsid SLEEP & SLEEP"),
        ]);
        let mut running = Running::start(&mut command);
        mark.becomes(3);
        running.signal(signal);
        let sent = Instant::now();
        wait_until(PATIENCE, "the row is free", || {
            election.leader("x").unwrap().is_none()
        });
        assert!(
            sent.elapsed() < Duration::from_secs(1),
            "{signal:?}: {:?}",
            sent.elapsed()
        );
        assert_eq!(mark.alive(), 0, "{signal:?}");
        // A shell in the background ignores INT and QUIT, and may be the one that ends last.
        let ended = running.end(PATIENCE).0.code();
        assert!(
            ended == Some(code) || ended == Some(143),
            "{signal:?}: {ended:?}"
        );
    }
}

fn a_signal_ends_one_who_waits<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    election.elect(uuid::Uuid::new_v4(), "x").unwrap();
    let mut command = leasehold(&fresh.url);
    command.args(["run", "--ns", "x", "--", "echo", "ran"]);
    let mut running = Running::start(&mut command);
    wait_until(PATIENCE, "it stands", || {
        election.list_candidates("x").unwrap().len() == 2
    });
    running.signal(Signal::TERM);
    let (status, err) = running.end(Duration::from_secs(3));
    assert_eq!(status.code(), Some(143));
    assert!(err.contains("the command was not run"), "{err}");
    assert_eq!(
        election.list_candidates("x").unwrap().len(),
        1,
        "it stands no more"
    );
}

/// kill -9 of the program, or of its warden: the other one ends the command.
fn a_killed_program_leaves_nothing_behind<C: Database>() {
    let fresh = Fresh::new::<C>();
    // The lease of a killed leader stays to its end, so that the next round needs another.
    for (warden, ns) in [(false, "x"), (true, "y")] {
        let mark = Mark::new();
        let script = mark.script(r#"trap "" TERM; setsid SLEEP & SLEEP & SLEEP"#);
        let mut command = leasehold(&fresh.url);
        command.args([
            "run", "--ns", ns, "--expire", "60s", "--", "sh", "-c", &script,
        ]);
        let mut running = Running::start(&mut command);
        mark.becomes(3);
        let victim = if warden {
            warden_of(&running)
        } else {
            running.pid()
        };
        process::kill(victim);
        mark.becomes(0);
        let (status, _) = running.end(PATIENCE);
        assert_eq!(status.code(), warden.then_some(137));
    }
}

fn warden_of(running: &Running) -> Pid {
    process::children_of(running.pid())[0]
}

#[cfg(feature = "sqlite")]
mod anywhere {
    use super::*;

    type Any = diesel::sqlite::SqliteConnection;

    #[test]
    fn other_signals_are_for_the_command() {
        let fresh = Fresh::new::<Any>();
        let script = r#"trap "echo one" USR1; trap "echo two; exit 5" USR2; echo ready; while :; do sleep 0.02; done"#;
        let mut running = Running::start(
            leasehold(&fresh.url).args(["run", "--ns", "x", "--", "sh", "-c", script]),
        );
        assert_eq!(running.line(), "ready");
        running.signal(Signal::USR1);
        assert_eq!(running.line(), "one");
        running.signal(Signal::USR2);
        assert_eq!(running.line(), "two");
        assert_eq!(running.end(PATIENCE).0.code(), Some(5));
    }

    #[test]
    fn a_command_that_ignores_the_end_keeps_the_lease_until_it_ends_or_is_killed() {
        let fresh = Fresh::new::<Any>();
        let script = r#"trap "echo heard" TERM; echo ready; while :; do sleep 0.02; done"#;
        let run = |ns, more: &[&str]| {
            let mut command = leasehold(&fresh.url);
            command
                .args(["run", "--ns", ns])
                .args(more)
                .args(["--", "sh", "-c", script]);
            let running = Running::start(&mut command);
            assert_eq!(running.line(), "ready");
            running.signal(Signal::TERM);
            assert_eq!(running.line(), "heard");
            running
        };
        let patient = run("x", &[]);
        assert!(fresh.election().leader("x").unwrap().is_some());
        drop(patient);
        let mut strict = run("y", &["--kill-after", "200ms"]);
        assert_eq!(strict.end(PATIENCE).0.code(), Some(137));
        assert!(fresh.election().leader("y").unwrap().is_none());
    }

    /// As process 1 of a container: orphans come to the program, and it waits for them.
    #[test]
    fn orphans_are_reaped() {
        let fresh = Fresh::new::<Any>();
        let script =
            "for i in 1 2 3 4 5 6 7 8; do (sh -c 'sleep 0.05' &) ; done; echo ready; exec sleep 60";
        let running = Running::start(
            leasehold(&fresh.url).args(["run", "--ns", "x", "--", "sh", "-c", script]),
        );
        assert_eq!(running.line(), "ready");
        let warden = warden_of(&running);
        wait_until(PATIENCE, "only the command is left", || {
            process::children_of(warden).len() == 1
        });
    }
}

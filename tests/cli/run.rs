//! `leasehold run` where nothing fails.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::database::{Database, Fresh};
use crate::running::{Mark, PATIENCE, Running, leasehold, said};
use crate::support::process::Signal;

on_every_database![
    the_exit_code_is_that_of_the_command,
    the_command_is_told_what_it_leads,
    a_second_candidate_runs_when_the_first_has_ended,
    one_try_and_no_more,
    no_answer_is_no_answer,
    the_lease_is_held_for_as_long_as_asked,
    what_a_command_leaves_behind_is_ended,
];

/// F26
fn the_exit_code_is_that_of_the_command<C: Database>() {
    let fresh = Fresh::without_tables::<C>();
    for (script, code) in [
        ("exit 7", 7),
        ("exit 0", 0),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
    ] {
        let mut command = leasehold(&fresh.url);
        command.args(["run", "-q", "--ns", "x", "--", "sh", "-c", script]);
        assert_eq!(
            said(&mut command),
            (code, String::new(), String::new()),
            "{script}"
        );
    }
    for (program, code) in [("/no/such/program", 127), ("/etc/passwd", 126)] {
        let (ended, _, err) = said(leasehold(&fresh.url).args(["run", "--ns", "x", "--", program]));
        assert_eq!(ended, code);
        assert!(
            err.contains("cannot be started") && err.contains("Check its name"),
            "{err}"
        );
    }
    assert!(
        fresh.election().leader("x").unwrap().is_none(),
        "released every time"
    );
    assert_eq!(fresh.election().history("x", 10).unwrap().len(), 6);
}

fn the_command_is_told_what_it_leads<C: Database>() {
    let fresh = Fresh::new::<C>();
    let id = uuid::Uuid::new_v4().to_string();
    let script = r#"cat; printf '%s|' "$LEASEHOLD_NS" "$LEASEHOLD_TERM" "$LEASEHOLD_CANDIDATE" "$@"; echo oops >&2"#;
    let mut command = leasehold(&fresh.url);
    command
        .args([
            "run", "-q", "--ns", "the ns", "--id", &id, "--", "sh", "-c", script, "sh", "--flag",
        ])
        .arg(std::ffi::OsStr::from_bytes(b"\xff\xfe"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(b"from stdin\0\n")
        .unwrap();
    let output = child.wait_with_output().unwrap();
    let expected = [
        b"from stdin\0\nthe ns|1|",
        id.as_bytes(),
        b"|--flag|\xff\xfe|",
    ]
    .concat();
    assert_eq!(output.stdout, expected);
    assert_eq!(output.stderr, b"oops\n");
}

fn a_second_candidate_runs_when_the_first_has_ended<C: Database>() {
    let fresh = Fresh::new::<C>();
    let start = || {
        let script = "echo $LEASEHOLD_TERM; read line";
        let mut command = leasehold(&fresh.url);
        command.args([
            "run", "--ns", "x", "--expire", "3s", "--", "sh", "-c", script,
        ]);
        command.stdin(Stdio::piped());
        Running::start(&mut command)
    };
    let mut first = start();
    assert_eq!(first.line(), "1");
    let second = start();
    let election = fresh.election();
    crate::support::wait_until(PATIENCE, "both stand", || {
        election.list_candidates("x").unwrap().len() == 2
    });
    first.signal(Signal::TERM);
    assert_eq!(first.end(PATIENCE).0.code(), Some(143));
    assert_eq!(second.line(), "2");
}

fn one_try_and_no_more<C: Database>() {
    let fresh = Fresh::new::<C>();
    let leader = uuid::Uuid::new_v4();
    fresh.election().elect(leader, "x").unwrap();
    for wait in ["0s", "500ms"] {
        let mut command = leasehold(&fresh.url);
        command.args(["run", "--ns", "x", "--wait", wait, "--", "echo", "ran"]);
        let (code, out, err) = said(&mut command);
        assert_eq!((code, out.as_str()), (1, ""), "{err}");
        assert!(err.contains(&leader.to_string()), "{err}");
    }
    let (code, out, _) =
        said(leasehold(&fresh.url).args(["run", "--ns", "y", "--wait", "0s", "echo", "ran"]));
    assert_eq!((code, out.as_str()), (0, "ran\n"));
}

/// Nobody leads, but somebody keeps the row: that the command is not run is then no "no".
fn no_answer_is_no_answer<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    let before = uuid::Uuid::new_v4();
    election.elect(before, "x").unwrap();
    election.unregister_candidate(before, "x").unwrap();
    let mut lock = fresh.connect::<C>();
    lock.hold_row("x");
    let mut command = leasehold(&fresh.url);
    command.args([
        "run", "-q", "--ns", "x", "--wait", "500ms", "--", "echo", "ran",
    ]);
    let (code, out, err) = said(&mut command);
    assert_eq!((code, out.as_str()), (3, ""), "{err}");
    assert!(err.contains("Not leader of \"x\""), "{err}");
}

fn the_lease_is_held_for_as_long_as_asked<C: Database>() {
    let fresh = Fresh::new::<C>();
    let mut command = leasehold(&fresh.url);
    command.args([
        "run",
        "--ns",
        "x",
        "--hold",
        "1h",
        "--",
        "sh",
        "-c",
        "echo done; exit 5",
    ]);
    let mut holder = Running::start(&mut command);
    assert_eq!(holder.line(), "done");
    let mut late = leasehold(&fresh.url);
    let (code, ..) = said(late.args(["run", "--ns", "x", "--wait", "300ms", "--", "true"]));
    assert_eq!(code, 1);
    holder.signal(Signal::TERM);
    assert_eq!(holder.end(PATIENCE).0.code(), Some(5));
    assert!(fresh.election().leader("x").unwrap().is_none());
}

fn what_a_command_leaves_behind_is_ended<C: Database>() {
    let fresh = Fresh::new::<C>();
    let mark = Mark::new();
    let script = mark.script(r#"setsid SLEEP & sh -c 'trap "" TERM; SLEEP & wait; wait' & (SLEEP &) ; sleep 0.2; exit 3"#);
    let began = Instant::now();
    let (code, ..) =
        said(leasehold(&fresh.url).args(["run", "--ns", "x", "--", "sh", "-c", &script]));
    assert_eq!((code, mark.alive()), (3, 0));
    assert!(began.elapsed() < Duration::from_secs(10));
}

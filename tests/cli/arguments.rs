//! Odd arguments: each gets an answer, none a panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::database::{Database, Fresh};
use crate::running::{leasehold, said};

on_every_database![names_that_no_database_keeps_exactly_are_refused];

fn names_that_no_database_keeps_exactly_are_refused<C: Database>() {
    let fresh = Fresh::new::<C>();
    let too_long = "é".repeat(256);
    let id = uuid::Uuid::new_v4().to_string();
    for ns in ["", " a", "a ", "a\nb", "\u{1b}[31m", &too_long] {
        for command in [
            ["leader"].as_slice(),
            &["candidates"],
            &["status"],
            &["history"],
            &["elect", "--id", &id],
        ] {
            let (code, out, err) = said(leasehold(&fresh.url).args(command).args(["--ns", ns]));
            assert_eq!((code, out.as_str()), (2, ""), "{command:?} {ns:?}: {err}");
            assert!(
                err.contains("1 to 255 characters") && !err.contains('\x1b'),
                "{err}"
            );
        }
        let (code, out, _) =
            said(leasehold(&fresh.url).args(["run", "--ns", ns, "--", "echo", "ran"]));
        assert_eq!((code, out.as_str()), (2, ""), "run {ns:?}");
    }
    let longest = "\u{1f512}".repeat(255);
    assert_eq!(
        said(leasehold(&fresh.url).args(["elect", "--id", &id, "--ns", &longest])).0,
        0
    );
    let (code, table, _) = said(leasehold(&fresh.url).arg("status"));
    assert!(code == 0 && table.contains(&longest));
}

/// Nobody listens on this port: whoever connects says so, with another exit code.
const NOWHERE: [&str; 3] = [
    "postgres://u@127.0.0.1:1/d",
    "mysql://u@127.0.0.1:1/d",
    "sqlite:/no/such/dir/x.db",
];

const SOME_ID: &str = "6f3c0000-0000-4000-8000-000000000001";

/// A command with these arguments is refused for what it was given, and not for the database: each time another kind.
#[track_caller]
fn refused_without_a_connection(args: &[&str], because: &str) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let url = NOWHERE[NEXT.fetch_add(1, Ordering::Relaxed) % NOWHERE.len()];
    let (code, out, err) = said(leasehold(url).args(args));
    assert_eq!((code, out.as_str()), (2, ""), "{args:?} {url}: {err}");
    assert!(
        err.contains(because) && !err.contains("connect"),
        "{args:?} {url}: {err}"
    );
    is_two_sentences(&err);
}

#[test]
fn a_wrong_namespace_is_refused_before_anything_is_opened() {
    let too_long = "é".repeat(256);
    for ns in ["", " a", "a\u{a0}", "a\nb", "\u{1b}[31m", &too_long] {
        for command in ["leader", "candidates", "status", "history"] {
            refused_without_a_connection(&[command, "--ns", ns], "1 to 255 characters");
        }
        for command in ["elect", "heartbeat", "register", "unregister", "is-leader"] {
            let args = [command, "--id", SOME_ID, "--ns", ns];
            refused_without_a_connection(&args, "1 to 255 characters");
        }
        let args = ["run", "--ns", ns, "--", "true"];
        refused_without_a_connection(&args, "1 to 255 characters");
    }
}

#[test]
fn a_wrong_candidate_is_refused_before_anything_is_opened() {
    for id in [
        "",
        "x",
        "6f3c0000-0000-4000-8000-00000000000",
        &"6".repeat(256),
    ] {
        for command in ["elect", "heartbeat", "register", "unregister", "is-leader"] {
            refused_without_a_connection(&[command, "--id", id], "--id <UUID>");
        }
        refused_without_a_connection(&["run", "--ns", "x", "--id", id, "true"], "--id <UUID>");
    }
}

#[test]
fn a_wrong_lease_is_refused_before_anything_is_opened() {
    for expire in ["", "0s", "50ms", "366d", "5000years", "15", "soon", "-1s"] {
        let option = format!("--expire={expire}");
        for command in ["elect", "heartbeat", "register", "unregister", "is-leader"] {
            refused_without_a_connection(&[command, "--id", SOME_ID, &option], "--expire");
        }
        refused_without_a_connection(&["check", &option], "--expire");
        refused_without_a_connection(&["run", "--ns", "x", &option, "true"], "--expire");
    }
    // A command cannot be ended in good order within less than a second.
    let args = ["run", "--ns", "x", "--expire", "500ms", "true"];
    refused_without_a_connection(&args, "1s to 365d");
}

/// What happened, and what to do.
#[track_caller]
fn is_two_sentences(err: &str) {
    let lines: Vec<&str> = err.lines().collect();
    assert!(
        err.starts_with("leasehold: ") && lines.len() == 2 && !err.contains('\x1b'),
        "{err:?}"
    );
    assert!(lines.iter().all(|line| line.ends_with(['.', '?'])), "{err}");
}

#[test]
fn who_names_no_database_is_told_how() {
    for command in [
        ["leader"].as_slice(),
        &["check"],
        &["run", "--ns", "x", "true"],
    ] {
        let (code, _, err) = said(
            leasehold("")
                .env_remove("LEASEHOLD_DATABASE_URL")
                .args(command),
        );
        assert_eq!(code, 2, "{err}");
        is_two_sentences(&err);
        let help = format!("see `leasehold {} --help`", command[0]);
        assert!(
            err.contains("into LEASEHOLD_DATABASE_URL") && err.contains(&help),
            "{err}"
        );
    }
}

#[test]
fn a_value_that_a_terminal_would_obey_is_shown_harmless() {
    let (code, _, err) = said(leasehold("").args(["elect", "--id", "\x1b[2J\x07"]));
    assert_eq!(code, 2, "{err}");
    is_two_sentences(&err);
    assert!(!err.contains(['\x1b', '\x07']), "{err:?}");
}

#[test]
fn what_the_help_says_to_try_works() {
    let (_, help, _) = said(leasehold("").arg("--help"));
    let (_, lines) = help.split_once("Try:").expect("what to try");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("try.db").display().to_string();
    assert!(lines.contains("/tmp/try.db"), "{lines}");
    let script = lines.replace("/tmp/try.db", &file);
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"));
    let path = format!(
        "{}:{}",
        program.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut command = std::process::Command::new("sh");
    let (code, out, err) = said(command.args(["-c", &script]).env("PATH", path));
    let expected = if cfg!(feature = "sqlite") { 0 } else { 2 };
    assert_eq!(code, expected, "{out}{err}");
    assert!(code != 0 || out.contains(" leader "), "{out}{err}");
}

#[test]
fn a_question_for_a_lease_creates_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (scope, operation) = ("5c".repeat(32), "ab".repeat(32));
    for root in [dir.path().to_owned(), dir.path().join("new")] {
        let mut command = leasehold("");
        command
            .args([
                "lease",
                "inspect",
                "--scope",
                &scope,
                "--operation",
                &operation,
            ])
            .arg("--root")
            .arg(root);
        let (code, out, err) = said(&mut command);
        assert!(code == 0 && out.contains("\"absent\""), "{out}{err}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[cfg(feature = "sqlite")]
#[test]
fn a_file_that_is_no_database_is_told_as_what_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, "This is a text, and no database at all.").unwrap();
    for (url, code, words) in [
        (format!("sqlite:{}", file.display()), 3, "not a database"),
        (
            format!("sqlite:{}", dir.path().display()),
            3,
            "Check the path",
        ),
        ("sqlite::memory:".to_owned(), 2, "Name a file"),
        (
            "sqlite:x?mode=ro".to_owned(),
            2,
            "parameters are not supported",
        ),
    ] {
        for command in ["leader", "status", "check", "migrate"] {
            let (ended, _, err) = said(leasehold(&url).arg(command));
            assert_eq!(ended, code, "{url} {command}: {err}");
            assert!(err.contains(words), "{url} {command}: {err}");
            is_two_sentences(&err);
        }
    }
}

#[test]
fn what_is_mistyped_is_a_usage_error() {
    let not_text = OsStr::from_bytes(b"\xff\xfe");
    let cases: [&[&str]; 18] = [
        &[],
        &["lead"],
        &["leader", "--nss", "x"],
        &["run", "--ns", "x"],
        &["run", "--", "true"],
        &["run", "--ns", "x", "--expire", "15", "--", "true"],
        &["run", "--ns", "x", "--expire", "0s", "--", "true"],
        &["run", "--ns", "x", "--expire", "500ms", "--", "true"],
        &[
            "run",
            "--ns",
            "x",
            "--expire",
            "18446744073709551615s",
            "--",
            "true",
        ],
        &[
            "run",
            "--ns",
            "x",
            "--expire",
            "99999999999999999999s",
            "--",
            "true",
        ],
        &["elect", "--id", "not-a-uuid"],
        &["elect", "--id", "", "--ns", "x"],
        &[
            "elect",
            "--id",
            "6f3c0000-0000-4000-8000-000000000001",
            "--expire",
            "0s",
        ],
        &["history", "--limit", "0"],
        &["status", "--interval", "5s"],
        &["leader", "--timeout", "0s"],
        &["__warden", "77", "true"],
        &["completions", "tcsh"],
    ];
    for args in cases {
        let (code, out, err) = said(leasehold("sqlite:/no/such/dir/x.db").args(args));
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        // Who types nothing gets the help.
        if !args.is_empty() {
            is_two_sentences(&err);
        }
        assert!(
            !err.is_empty() && !err.contains("panicked"),
            "{args:?}: {err}"
        );
    }
    for option in ["--ns", "--database", "--id"] {
        let (code, _, err) = said(leasehold("").args(["is-leader", option]).arg(not_text));
        assert_eq!(code, 2, "{option}: {err}");
        is_two_sentences(&err);
    }
}

#[test]
fn what_cannot_be_opened_is_an_error_of_two_sentences() {
    for command in ["leader", "status", "migrate"] {
        let (code, _, err) = said(leasehold("sqlite:/no/such/dir/x.db").arg(command));
        let expected = if cfg!(feature = "sqlite") { 3 } else { code };
        assert_eq!(code, expected, "{err}");
        assert!(
            err.starts_with("leasehold: ") && err.lines().count() == 2,
            "{err}"
        );
    }
}

#[test]
fn help_completions_and_the_manual_need_no_database() {
    for args in [
        ["--help"].as_slice(),
        &["--version"],
        &["man"],
        &["completions", "bash"],
        &["completions", "fish"],
    ] {
        let (code, out, err) = said(leasehold("").args(args));
        assert!(
            code == 0 && out.contains("leasehold") && err.is_empty(),
            "{args:?}: {err}"
        );
    }
    let dir = tempfile::tempdir().unwrap();
    assert_eq!(
        said(leasehold("").args(["man", "--dir"]).arg(dir.path())).0,
        0
    );
    assert!(dir.path().join("leasehold-run.1").exists());
}

//! Odd arguments: each gets an answer, none a panic.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

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

#[test]
fn what_is_mistyped_is_a_usage_error() {
    let not_text = OsStr::from_bytes(b"\xff\xfe");
    let cases: [&[&str]; 16] = [
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
        &["completions", "tcsh"],
    ];
    for args in cases {
        let (code, out, err) = said(leasehold("sqlite:/no/such/dir/x.db").args(args));
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(
            !err.is_empty() && !err.contains("panicked"),
            "{args:?}: {err}"
        );
    }
    for option in ["--ns", "--database", "--id"] {
        let (code, _, err) = said(leasehold("").args(["is-leader", option]).arg(not_text));
        assert_eq!(code, 2, "{option}: {err}");
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

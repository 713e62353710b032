//! `leasehold lease`: JSON in, JSON out.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

use crate::running::leasehold;

const EARLY: &str = "2030-01-01T00:00:00Z";
const LATE: &str = "2030-01-01T01:00:00Z";

/// Runs `lease ARGS` under `root` with `input`: exit code, and what it printed.
#[track_caller]
fn lease(root: &Path, args: &[&str], input: &Value) -> (i32, Value) {
    let mut command = leasehold("");
    command.arg("lease").args(args).arg("--root").arg(root);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // One that does not read it may have ended already.
    let _ = child
        .stdin
        .take()
        .unwrap()
        .write_all(input.to_string().as_bytes());
    let output = child.wait_with_output().unwrap();
    let printed = serde_json::from_slice(&output.stdout);
    let said = printed.unwrap_or_else(|_| String::from_utf8(output.stderr).unwrap().into());
    (output.status.code().unwrap(), said)
}

#[test]
fn a_lease_goes_from_hand_to_hand() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let (scope, operation) = ("5c".repeat(32), "ab".repeat(32));
    let about = ["--scope", &scope, "--operation", &operation];
    let with = |words: &[&'static str]| [words, &about].concat();
    let nothing = Value::Null;

    let (code, seen) = lease(root, &with(&["inspect", "--at", EARLY]), &nothing);
    assert_eq!((code, &seen["observation"]), (0, &"absent".into()));
    let (code, mine) = lease(
        root,
        &with(&["acquire", "--at", EARLY, "--for", "10m"]),
        &nothing,
    );
    assert_eq!((code, &mine["result"]), (0, &"acquired".into()));
    let (code, taken) = lease(
        root,
        &with(&["acquire", "--at", EARLY, "--for", "10m"]),
        &nothing,
    );
    assert_eq!((code, &taken["result"]), (1, &"conflict".into()));

    let (code, longer) = lease(root, &["renew", "--at", EARLY, "--for", "20m"], &mine);
    assert_eq!((code, &longer["result"]), (0, &"renewed".into()));
    let (code, stale) = lease(root, &["renew", "--at", EARLY, "--for", "30m"], &mine);
    assert_eq!((code, &stale["result"]), (1, &"owner_lost".into()));
    let (code, early) = lease(root, &["take-over", "--at", EARLY, "--for", "1m"], &longer);
    assert_eq!((code, &early["result"]), (1, &"conflict".into()));
    let (code, over) = lease(
        root,
        &["renew", "--at", LATE, "--for", "30m"],
        &longer["current"],
    );
    assert_eq!((code, &over["result"]), (1, &"expired".into()));

    let (code, other) = lease(root, &["take-over", "--at", LATE, "--for", "1m"], &over);
    assert_eq!((code, &other["result"]), (0, &"taken_over".into()));
    assert_ne!(other["current"]["token"], mine["current"]["token"]);
    let (code, lost) = lease(root, &["release", "--at", LATE], &longer);
    assert_eq!((code, &lost["result"]), (1, &"owner_lost".into()));
    let (code, free) = lease(root, &["release", "--at", LATE], &other);
    assert_eq!((code, &free["result"]), (0, &"released".into()));
    let (_, seen) = lease(root, &with(&["inspect", "--at", LATE]), &nothing);
    assert_eq!(seen["observation"], "absent");
}

#[test]
fn what_is_no_lease_is_refused_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for input in [
        Value::Null,
        "x".into(),
        serde_json::json!({ "current": { "token": "ab" } }),
    ] {
        let (code, said) = lease(dir.path(), &["release"], &input);
        assert_eq!(code, 2, "{said}");
    }
    let short = [
        "acquire",
        "--scope",
        "5c",
        "--operation",
        &"ab".repeat(32),
        "--for",
        "1m",
    ];
    assert_eq!(lease(dir.path(), &short, &Value::Null).0, 2);
    let (scope, operation) = ("5c".repeat(32), "ab".repeat(32));
    for length in ["0s", "18446744073709551615s"] {
        let args = [
            "acquire",
            "--scope",
            &scope,
            "--operation",
            &operation,
            "--for",
            length,
        ];
        let (code, said) = lease(dir.path(), &args, &Value::Null);
        assert_eq!(code, 2, "{length}: {said}");
    }
    let leftovers = |dir: &Path| {
        std::fs::read_dir(dir.join("operation-journals")).map_or(0, |found| {
            found
                .flatten()
                .filter(|file| file.file_name().to_string_lossy().ends_with("lease.json"))
                .count()
        })
    };
    assert_eq!(leftovers(dir.path()), 0);
    let args = ["inspect", "--scope", &scope, "--operation", &operation];
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    assert_eq!(
        lease(&file, &args, &Value::Null).0,
        3,
        "a root that is a file"
    );
}

//! The published Python package `cadrumo` 0.5.1: its bytes are ours, and ours are its.
//!
//! The fixed records were written by that package. With `LEASEHOLD_CADRUMO_PYTHON` set to a Python (3.13 or newer) that can import
//! `cadrumo`, random histories run on both implementations side by side, changing directories in between.

#[path = "support/operation.rs"]
mod support;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    OperationLeaseError as Error, OperationLeaseFilesystemRepository,
    OperationLeaseObservation as Observation, OperationLeaseResult as Outcome, OperationOwnerLease,
};
use serde_json::json;
use support::{Fixture, operation, owner, rounds, scope, token};

fn instant(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// What the package wrote for an acquisition at the first time of a lease with these times.
fn held(acquired: &str, expires: &str) -> String {
    format!(
        r#"{{
  "schema_version": 2,
  "scope_ref": "{scope}",
  "operation_id": "{operation}",
  "recorded_at": "{acquired}",
  "lease": {{
    "operation_id": "{operation}",
    "scope_ref": "{scope}",
    "owner_id": "0303030303030303030303030303030303030303030303030303030303030303",
    "token": "0404040404040404040404040404040404040404040404040404040404040404",
    "acquired_at": "{acquired}",
    "expires_at": "{expires}"
  }}
}}
"#,
        scope = "0101010101010101010101010101010101010101010101010101010101010101",
        operation = "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2",
    )
}

const TIMES: [(&str, &str); 3] = [
    ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000007Z"),
    ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"),
    ("1969-01-01T00:00:00.120000Z", "1970-01-01T00:00:00Z"),
];

const RELEASED: &str = r#"{
  "schema_version": 2,
  "scope_ref": "0101010101010101010101010101010101010101010101010101010101010101",
  "operation_id": "a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2a2",
  "recorded_at": "1969-01-01T00:00:00.120000Z",
  "lease": null
}
"#;

fn sample(acquired: &str, expires: &str) -> OperationOwnerLease {
    OperationOwnerLease::new(
        operation(2),
        scope(1),
        owner(3),
        token(4),
        instant(acquired),
        instant(expires),
    )
    .unwrap()
}

#[test]
fn records_are_written_byte_for_byte_as_the_package_writes_them() {
    for (acquired, expires) in TIMES {
        let it = Fixture::new();
        let lease = sample(acquired, expires);
        let _ = it.leases.acquire(&lease, instant(acquired)).unwrap();
        assert_eq!(
            String::from_utf8(it.bytes()).unwrap(),
            held(acquired, expires)
        );
    }
    let it = Fixture::new();
    let (acquired, expires) = TIMES[2];
    let lease = sample(acquired, expires);
    let _ = it.leases.acquire(&lease, instant(acquired)).unwrap();
    let _ = it.leases.release(&lease, instant(acquired)).unwrap();
    assert_eq!(String::from_utf8(it.bytes()).unwrap(), RELEASED);
}

#[test]
fn records_of_the_package_are_read() {
    let it = Fixture::new();
    it.storage().ensure_root().unwrap();
    let locked = it.storage().lock().unwrap();
    for (acquired, expires) in TIMES {
        fs::write(it.record(), held(acquired, expires)).unwrap();
        assert_eq!(
            locked.current(&scope(1)).unwrap(),
            Some(sample(acquired, expires))
        );
    }
    fs::write(it.record(), RELEASED).unwrap();
    assert_eq!(locked.current(&scope(1)).unwrap(), None);
}

struct Package {
    child: Child,
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Package {
    fn start(python: &str) -> Self {
        let script =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/operation_cadrumo.py");
        let mut command = Command::new(python);
        command
            .arg(script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut child = command
            .spawn()
            .expect("LEASEHOLD_CADRUMO_PYTHON is a Python");
        let questions = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self {
            child,
            questions,
            answers,
        }
    }

    fn ask(&mut self, question: serde_json::Value) -> String {
        writeln!(self.questions, "{question}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the package does not answer");
        answer.trim_end().to_owned()
    }
}

impl Drop for Package {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A small generator, so that a history can be told by its number.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn lease(&mut self, now: DateTime<Utc>) -> OperationOwnerLease {
        let begin = if self.below(5) == 0 {
            self.below(5) as i64 - 2
        } else {
            0
        };
        let begin = now + TimeDelta::microseconds(begin);
        OperationOwnerLease::new(
            operation(1 + self.below(2) as u8),
            scope(1 + self.below(2) as u8),
            owner(1 + self.below(3) as u8),
            token(1 + self.below(3) as u8),
            begin,
            begin + TimeDelta::microseconds(1 + self.below(5) as i64),
        )
        .unwrap()
    }
}

fn word(outcome: &Result<Outcome, Error>) -> &'static str {
    match outcome {
        Ok(Outcome::Acquired { .. }) => "acquired",
        Ok(Outcome::Renewed { .. }) => "renewed",
        Ok(Outcome::Released { .. }) => "released",
        Ok(Outcome::Conflict { .. }) => "conflict",
        Ok(Outcome::Expired { .. }) => "expired",
        Ok(Outcome::TakenOver { .. }) => "taken_over",
        Ok(Outcome::OwnerLost { .. }) => "owner_lost",
        Err(_) => "error",
    }
}

/// Where both agree, or the package refuses a loss because the clock was read before a lease in it began.
fn agree(ours: &Result<Outcome, Error>, theirs: &str, now: DateTime<Utc>) -> bool {
    if theirs.split(' ').next() == Some(word(ours)) {
        return true;
    }
    let early =
        |lease: Option<&OperationOwnerLease>| lease.is_some_and(|lease| lease.acquired_at() > now);
    match ours {
        Ok(loss @ (Outcome::OwnerLost { .. } | Outcome::Conflict { .. })) => {
            theirs.starts_with("error") && (early(loss.current()) || early(loss.predecessor()))
        }
        _ => false,
    }
}

fn play(
    package: &mut Package,
    number: u64,
    tally: &mut std::collections::BTreeMap<&'static str, usize>,
) {
    let mut roots = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let mut random = Random(number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let mut now = instant("2026-01-02T03:04:05.999990Z");
    for step in 0..30 {
        now += TimeDelta::microseconds(if random.below(8) == 0 {
            random.below(9) as i64 - 3
        } else {
            random.below(3) as i64
        });
        // Each implementation goes on from the other's records.
        roots.swap(0, random.below(2) as usize);
        let leases = OperationLeaseFilesystemRepository::new(roots[0].path());
        let root = roots[1].path().to_str().unwrap();
        let observed_at = now.to_rfc3339();
        let current = leases.storage().lock().unwrap().current(&scope(1)).unwrap();
        let old = match current {
            Some(current) if random.below(4) > 0 => current,
            _ => random.lease(now),
        };
        let new = match random.below(3) {
            0 => old
                .with_expiry(old.expires_at() + TimeDelta::microseconds(random.below(4) as i64))
                .unwrap(),
            _ => random.lease(now),
        };
        let (ours, theirs) = match random.below(8) {
            0 => {
                let (s, o) = (scope(1), operation(1));
                let theirs = package.ask(json!({
                    "call": "inspect", "root": root, "scope_ref": s, "operation_id": o, "observed_at": observed_at
                }));
                let ours = match leases.inspect(&s, &o, now) {
                    Ok(Observation::Absent) => "absent",
                    Ok(Observation::Active { .. }) => "active",
                    Ok(Observation::Expired { .. }) => "expired",
                    Err(_) => "error",
                };
                assert_eq!(theirs.split(' ').next(), Some(ours), "history {number}, step {step}");
                continue;
            }
            1 | 2 => (
                leases.acquire(&new, now),
                package.ask(json!({"call": "acquire", "root": root, "candidate": new, "observed_at": observed_at})),
            ),
            3 => (
                leases.release(&old, now),
                package.ask(json!({"call": "release", "root": root, "predecessor": old, "observed_at": observed_at})),
            ),
            _ => (
                leases.compare_and_swap(&old, &new, now),
                package.ask(json!({
                    "call": "compare_and_swap", "root": root, "predecessor": old, "successor": new,
                    "observed_at": observed_at
                })),
            ),
        };
        assert!(
            agree(&ours, &theirs, now),
            "history {number}, step {step}: {ours:?}, and the package: {theirs}"
        );
        *tally.entry(word(&ours)).or_default() += 1;
        for s in [1, 2] {
            let read = |root: &tempfile::TempDir| {
                fs::read(
                    root.path()
                        .join(format!("operation-journals/{}.lease.json", scope(s))),
                )
                .ok()
            };
            assert_eq!(
                read(&roots[0]),
                read(&roots[1]),
                "history {number}, step {step}"
            );
        }
    }
}

#[test]
fn histories_agree_with_the_package() {
    let Ok(python) = std::env::var("LEASEHOLD_CADRUMO_PYTHON") else {
        eprintln!(
            "LEASEHOLD_CADRUMO_PYTHON is not set: compared with recorded bytes of the package only"
        );
        return;
    };
    let mut package = Package::start(&python);
    let mut tally = std::collections::BTreeMap::new();
    for number in 0..rounds("LEASEHOLD_PYTHON_HISTORIES", 40) {
        play(&mut package, number as u64, &mut tally);
    }
    println!("{tally:?}");
    assert_eq!(tally.len(), 8, "every outcome occurs: {tally:?}");
}

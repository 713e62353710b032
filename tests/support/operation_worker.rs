//! What the other process does in tests with processes: this test binary, started again with a task.

use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use leasehold::operation::{
    OperationLeaseFilesystemRepository, OperationLeaseResult as Outcome, OperationOwnerLease,
};

use crate::support::{at, lease, operation, owner, scope, token};

pub const TASK: &str = "LEASEHOLD_TEST_TASK";
pub const TASK_ROOT: &str = "LEASEHOLD_TEST_ROOT";

pub fn word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Acquired { .. } => "acquired",
        Outcome::Renewed { .. } => "renewed",
        Outcome::Released { .. } => "released",
        Outcome::Conflict { .. } => "conflict",
        Outcome::Expired { .. } => "expired",
        Outcome::TakenOver { .. } => "taken-over",
        Outcome::OwnerLost { .. } => "lost",
    }
}

/// The one transition of each kind that a worker makes: the lease recorded before, the lease after, and when.
pub struct Transition {
    pub kind: &'static str,
    pub before: Option<OperationOwnerLease>,
    pub after: Option<OperationOwnerLease>,
    pub observed: i64,
    pub outcome: &'static str,
}

pub fn transitions() -> [Transition; 4] {
    [
        Transition {
            kind: "acquire",
            before: None,
            after: Some(lease(1, 5, 15)),
            observed: 5,
            outcome: "acquired",
        },
        Transition {
            kind: "renew",
            before: Some(lease(1, 0, 10)),
            after: Some(lease(1, 0, 20)),
            observed: 5,
            outcome: "renewed",
        },
        Transition {
            kind: "take-over",
            before: Some(lease(1, 0, 10)),
            after: Some(lease(2, 10, 20)),
            observed: 10,
            outcome: "taken-over",
        },
        Transition {
            kind: "release",
            before: Some(lease(1, 0, 10)),
            after: None,
            observed: 5,
            outcome: "released",
        },
    ]
}

/// The bytes of a record, written down a second time, independently of the crate.
pub fn record_text(lease: Option<&OperationOwnerLease>, recorded: DateTime<Utc>) -> Vec<u8> {
    let time = |time: DateTime<Utc>| time.format("%Y-%m-%dT%H:%M:%SZ").to_string();
    let body = match lease {
        None => "null".to_owned(),
        Some(lease) => format!(
            "{{\n    \"operation_id\": \"{}\",\n    \"scope_ref\": \"{}\",\n    \"owner_id\": \"{}\",\n    \"token\": \"{}\",\n    \
             \"acquired_at\": \"{}\",\n    \"expires_at\": \"{}\"\n  }}",
            lease.operation_id(),
            lease.scope_ref(),
            lease.owner_id(),
            lease.token(),
            time(lease.acquired_at()),
            time(lease.expires_at()),
        ),
    };
    format!(
        "{{\n  \"schema_version\": 2,\n  \"scope_ref\": \"{}\",\n  \"operation_id\": \"{}\",\n  \"recorded_at\": \"{}\",\n  \"lease\": {body}\n}}\n",
        scope(1),
        operation(1),
        time(recorded),
    )
    .into_bytes()
}

/// Step `k` of an endless history: acquire, renew, expire and be taken over, release.
/// Gives the lease recorded after it, and when it happens.
pub fn step(k: i64) -> (Option<OperationOwnerLease>, i64) {
    let begin = k.div_euclid(4) * 100;
    match k.rem_euclid(4) {
        0 => (Some(lease(1, begin, begin + 10)), begin),
        1 => (Some(lease(1, begin, begin + 20)), begin + 5),
        2 => (Some(lease(2, begin + 30, begin + 40)), begin + 30),
        _ => (None, begin + 35),
    }
}

pub fn run(task: &str) -> ExitCode {
    let root = std::env::var(TASK_ROOT).unwrap();
    let leases = OperationLeaseFilesystemRepository::new(&root);
    let (name, argument) = task.split_once(' ').unwrap_or((task, ""));
    match name {
        "transition" => transition(&leases, argument),
        "umask" => {
            let mask = u32::from_str_radix(argument, 8).unwrap();
            rustix::process::umask(rustix::fs::Mode::from_raw_mode(mask as _));
            let _ = leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
            ExitCode::SUCCESS
        }
        "history" => history(&leases, argument.parse().unwrap()),
        "take-over" => take_over(&leases, argument.parse().unwrap()),
        "contend" => contend(&leases, argument.parse().unwrap()),
        "hold" => {
            let _locked = leases.storage().lock().unwrap();
            say("held");
            std::thread::park();
            ExitCode::SUCCESS
        }
        other => panic!("unknown task {other}"),
    }
}

fn say(line: impl std::fmt::Display) {
    let mut out = std::io::stdout();
    writeln!(out, "{line}").and_then(|()| out.flush()).unwrap();
}

fn transition(leases: &OperationLeaseFilesystemRepository, kind: &str) -> ExitCode {
    let it = transitions()
        .into_iter()
        .find(|it| it.kind == kind)
        .unwrap();
    let now = at(it.observed);
    let outcome = match (&it.before, &it.after) {
        (None, Some(candidate)) => leases.acquire(candidate, now),
        (Some(old), Some(new)) => leases.compare_and_swap(old, new, now),
        (Some(old), None) => leases.release(old, now),
        (None, None) => unreachable!(),
    };
    match outcome {
        Ok(outcome) => {
            say(word(&outcome));
            ExitCode::SUCCESS
        }
        Err(error) => {
            let source = std::error::Error::source(&error).map(ToString::to_string);
            say(format_args!("error: {error}: {source:?}"));
            ExitCode::from(3)
        }
    }
}

fn history(leases: &OperationLeaseFilesystemRepository, from: i64) -> ExitCode {
    for k in from.. {
        say(format_args!("begin {k}"));
        let (before, _) = step(k - 1);
        let (after, now) = step(k);
        let outcome = match (&before, &after) {
            (None, Some(new)) => leases.acquire(new, at(now)),
            (Some(old), Some(new)) => leases.compare_and_swap(old, new, at(now)),
            (Some(old), None) => leases.release(old, at(now)),
            (None, None) => unreachable!(),
        };
        assert!(
            outcome
                .as_ref()
                .is_ok_and(|outcome| outcome.to_record().is_some()),
            "{k}: {outcome:?}"
        );
        say(format_args!("done {k}"));
    }
    ExitCode::SUCCESS
}

/// Reads predecessors, one a line, and tries to take each over.
fn take_over(leases: &OperationLeaseFilesystemRepository, n: u8) -> ExitCode {
    for line in std::io::stdin().lock().lines() {
        let old: OperationOwnerLease = serde_json::from_str(&line.unwrap()).unwrap();
        let now = old.expires_at();
        let new = OperationOwnerLease::new(
            operation(1),
            scope(1),
            // Another owner than the predecessor, which may be this worker's own of the last round.
            if old.owner_id() == owner(n) {
                owner(n + 100)
            } else {
                owner(n)
            },
            if old.token() == token(n) {
                token(n + 100)
            } else {
                token(n)
            },
            now,
            now + chrono::TimeDelta::seconds(10),
        )
        .unwrap();
        let outcome = leases.compare_and_swap(&old, &new, now).unwrap();
        say(format_args!(
            "{} {}",
            word(&outcome),
            serde_json::to_string(&new).unwrap()
        ));
    }
    ExitCode::SUCCESS
}

fn contend(leases: &OperationLeaseFilesystemRepository, millis: u64) -> ExitCode {
    let end = Instant::now() + Duration::from_millis(millis);
    let mut held = 0;
    while Instant::now() < end {
        let locked = leases.storage().lock().unwrap();
        locked
            .replace(&scope(1), &operation(1), None, at(0))
            .unwrap();
        held += 1;
    }
    say(held);
    ExitCode::SUCCESS
}

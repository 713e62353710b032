//! `leasehold lease`: owner leases of operations, with JSON in and out.

use std::io::{ErrorKind, Read};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    OperationLeaseError, OperationLeaseFilesystemRepository, OperationLeaseObservation,
    OperationLeaseResult, OperationLeaseStorage, OperationLeaseToken, OperationOwnerLease, OwnerId,
};
use serde_json::{Value, json};

use crate::program::args::{LeaseCommand, RootArgs, ScopeArgs};
use crate::program::failure::{Failure, NO, USAGE, YES};
use crate::program::output::print_json;

/// More than any lease needs, and little enough to read in one go.
const LONGEST_INPUT: u64 = 64 * 1024;

pub fn lease(command: LeaseCommand) -> Result<u8, Failure> {
    match command {
        LeaseCommand::Inspect { scope } => inspect(&scope),
        LeaseCommand::Acquire {
            scope,
            owner,
            lease,
        } => acquire(&scope, owner, lease),
        LeaseCommand::Renew { root, lease } => renew(&root, lease),
        LeaseCommand::TakeOver {
            root,
            owner,
            operation,
            lease,
        } => take_over(&root, owner, operation, lease),
        LeaseCommand::Release { root } => release(&root),
    }
}

fn inspect(args: &ScopeArgs) -> Result<u8, Failure> {
    let (scope, operation) = (parsed(&args.scope)?, parsed(&args.operation)?);
    let seen = match nothing_is_there(&args.root) {
        true => OperationLeaseObservation::Absent,
        false => {
            let (leases, now) = open(&args.root)?;
            leases.inspect(&scope, &operation, now)?
        }
    };
    let word = match &seen {
        OperationLeaseObservation::Absent => "absent",
        OperationLeaseObservation::Active { .. } => "active",
        OperationLeaseObservation::Expired { .. } => "expired",
    };
    print_json(&json!({ "observation": word, "current": seen.current() }))?;
    Ok(YES)
}

/// Whether no lease was ever taken under this root. The library would make the directory to look into it; a question shall not.
fn nothing_is_there(args: &RootArgs) -> bool {
    let lock = OperationLeaseStorage::new(&args.root).lock_path();
    let looked = lock.parent().map(std::fs::symlink_metadata);
    looked.is_some_and(|looked| looked.is_err_and(|error| error.kind() == ErrorKind::NotFound))
}

fn acquire(args: &ScopeArgs, owner: Option<String>, lease: Duration) -> Result<u8, Failure> {
    let (leases, now) = open(&args.root)?;
    let candidate = OperationOwnerLease::new(
        parsed(&args.operation)?,
        parsed(&args.scope)?,
        owner_or_random(owner)?,
        OperationLeaseToken::random(),
        now,
        after(now, lease)?,
    )?;
    answer(&leases.acquire(&candidate, now)?)
}

fn renew(root: &RootArgs, lease: Duration) -> Result<u8, Failure> {
    let (leases, now) = open(root)?;
    let mine = given()?;
    // Past its end a renewal would be judged as a takeover, and refused as a wrong one.
    if !mine.is_live_at(now) {
        return not_changed(&leases, &mine, now);
    }
    let longer = mine.with_expiry(after(now, lease)?)?;
    answer(&leases.compare_and_swap(&mine, &longer, now)?)
}

fn take_over(
    root: &RootArgs,
    owner: Option<String>,
    operation: Option<String>,
    lease: Duration,
) -> Result<u8, Failure> {
    let (leases, now) = open(root)?;
    let expired = given()?;
    if now < expired.expires_at() {
        return not_changed(&leases, &expired, now);
    }
    let operation = match operation {
        Some(operation) => parsed(&operation)?,
        None => expired.operation_id(),
    };
    let successor = OperationOwnerLease::new(
        operation,
        expired.scope_ref(),
        owner_or_random(owner)?,
        OperationLeaseToken::random(),
        now,
        after(now, lease)?,
    )?;
    answer(&leases.compare_and_swap(&expired, &successor, now)?)
}

fn release(root: &RootArgs) -> Result<u8, Failure> {
    let (leases, now) = open(root)?;
    answer(&leases.release(&given()?, now)?)
}

fn open(args: &RootArgs) -> Result<(OperationLeaseFilesystemRepository, DateTime<Utc>), Failure> {
    let storage = OperationLeaseStorage::new(&args.root).lock_timeout(args.lock_timeout)?;
    Ok((storage.into(), args.at.unwrap_or_else(Utc::now)))
}

/// The call cannot succeed at this time: says what is there instead, as the library would.
fn not_changed(
    leases: &OperationLeaseFilesystemRepository,
    shown: &OperationOwnerLease,
    now: DateTime<Utc>,
) -> Result<u8, Failure> {
    let seen = leases.inspect(&shown.scope_ref(), &shown.operation_id(), now)?;
    let word = match &seen {
        seen if seen.current() != Some(shown) => "owner_lost",
        OperationLeaseObservation::Active { .. } => "conflict",
        _ => "expired",
    };
    let (current, predecessor) = match word {
        "expired" => (None, seen.current()),
        "conflict" => (seen.current(), None),
        _ => (seen.current(), Some(shown)),
    };
    print_json(&json!({ "result": word, "current": current, "predecessor": predecessor }))?;
    Ok(NO)
}

/// What happened, and with which leases.
fn answer(result: &OperationLeaseResult) -> Result<u8, Failure> {
    let (word, code) = match result {
        OperationLeaseResult::Acquired { .. } => ("acquired", YES),
        OperationLeaseResult::Renewed { .. } => ("renewed", YES),
        OperationLeaseResult::Released { .. } => ("released", YES),
        OperationLeaseResult::TakenOver { .. } => ("taken_over", YES),
        OperationLeaseResult::Conflict { .. } => ("conflict", NO),
        OperationLeaseResult::Expired { .. } => ("expired", NO),
        OperationLeaseResult::OwnerLost { .. } => ("owner_lost", NO),
    };
    print_json(&json!({
        "result": word,
        "current": result.current(),
        "predecessor": result.predecessor(),
    }))?;
    Ok(code)
}

/// The lease on stdin: alone, or in what another command printed.
fn given() -> Result<OperationOwnerLease, Failure> {
    let advice = "give on stdin what `acquire`, `renew`, `take-over` or `inspect` printed, or the lease in it";
    let refused = |what: String| Failure::new(USAGE, what, advice);
    let mut text = String::new();
    std::io::stdin()
        .take(LONGEST_INPUT)
        .read_to_string(&mut text)
        .map_err(|error| refused(format!("stdin cannot be read: {error}")))?;
    let value: Value = serde_json::from_str(&text)
        .map_err(|error| refused(format!("stdin is not JSON: {error}")))?;
    let inner = ["current", "predecessor"]
        .into_iter()
        .find_map(|name| value.get(name).filter(|lease| lease.is_object()));
    let lease = inner.unwrap_or(&value);
    serde_json::from_value(lease.clone())
        .map_err(|error| refused(format!("there is no lease on stdin: {error}")))
}

fn owner_or_random(owner: Option<String>) -> Result<OwnerId, Failure> {
    owner.map_or_else(|| Ok(OwnerId::random()), |owner| parsed(&owner))
}

fn parsed<T>(text: &str) -> Result<T, Failure>
where
    T: std::str::FromStr,
    OperationLeaseError: From<T::Err>,
{
    Ok(text.parse().map_err(OperationLeaseError::from)?)
}

fn after(now: DateTime<Utc>, lease: Duration) -> Result<DateTime<Utc>, Failure> {
    let end = TimeDelta::from_std(lease)
        .ok()
        .and_then(|lease| now.checked_add_signed(lease));
    end.ok_or_else(|| {
        let what = format!("a lease of {lease:?} ends after the end of the calendar");
        Failure::new(USAGE, what, "give a shorter --for")
    })
}

//! Two processes fight for one operation. The holder is killed; the other takes over its exact expired lease.
//!
//! ```sh
//! cargo run --example operation_takeover
//! ```

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    OperationConflictScopeReference, OperationId, OperationLeaseError,
    OperationLeaseFilesystemRepository, OperationLeaseResult, OperationLeaseToken,
    OperationOwnerLease, OwnerId,
};

const LEASE: TimeDelta = TimeDelta::seconds(2);

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    match &arguments[1..] {
        [] => referee(),
        [name, storage_root] => contend(name, Path::new(storage_root)),
        _ => Err("usage: operation_takeover".into()),
    }
}

/// Starts both, kills whoever holds the operation first, and sees the other take over.
fn referee() -> Result<(), Box<dyn Error>> {
    let storage_root = tempfile::tempdir()?;
    let (sender, lines) = mpsc::channel();
    let mut contenders: Vec<(&str, Child)> = Vec::new();
    for name in ["anna", "bert"] {
        let mut child = Command::new(std::env::current_exe()?)
            .args([name.as_ref(), storage_root.path().as_os_str()])
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let sender = sender.clone();
        thread::spawn(move || {
            output
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| sender.send(line))
        });
        contenders.push((name, child));
    }
    drop(sender);

    let mut killed = false;
    for line in lines {
        println!("{line}");
        if let Some((name, holder)) = contenders
            .iter_mut()
            .find(|(name, _)| line.starts_with(*name))
            && !killed
            && line.ends_with("working")
        {
            println!("       … and {name} is killed");
            holder.kill()?;
            killed = true;
        }
    }
    for (name, mut child) in contenders {
        println!("{name}: {}", child.wait()?);
    }
    Ok(())
}

/// Gets hold of the operation, whatever it takes, works for three seconds, and lets go.
fn contend(name: &str, storage_root: &Path) -> Result<(), Box<dyn Error>> {
    let leases = OperationLeaseFilesystemRepository::new(storage_root);
    let owner_id = OwnerId::random();
    let mut held = loop {
        let now = Utc::now();
        match leases.acquire(&candidate(owner_id, now)?, now)? {
            OperationLeaseResult::Acquired { current, .. } => {
                println!("{name}: acquired the lease, working");
                break current;
            }
            OperationLeaseResult::Conflict { current, .. } => {
                println!(
                    "{name}: held by another until {}",
                    current.expires_at().format("%T%.3f")
                );
                let left = current.expires_at() - Utc::now();
                thread::sleep(left.to_std().unwrap_or_default());
            }
            OperationLeaseResult::Expired { predecessor, .. } => {
                let now = Utc::now();
                let result =
                    leases.compare_and_swap(&predecessor, &candidate(owner_id, now)?, now)?;
                if let OperationLeaseResult::TakenOver { current, .. } = result {
                    println!(
                        "{name}: took over the lease that expired at {}",
                        predecessor.expires_at().format("%T%.3f")
                    );
                    break current;
                }
            }
            _ => {}
        }
    };
    for _ in 0..3 {
        thread::sleep(Duration::from_secs(1));
        let now = Utc::now();
        let renewed = held.with_expiry(now + LEASE)?;
        match leases.compare_and_swap(&held, &renewed, now)? {
            OperationLeaseResult::Renewed { current, .. } => held = current,
            lost => return Err(format!("{name} lost the operation: {lost:?}").into()),
        }
        println!(
            "{name}: renewed until {}",
            held.expires_at().format("%T%.3f")
        );
    }
    let _ = leases.release(&held, Utc::now())?;
    println!("{name}: released");
    Ok(())
}

/// A lease that begins now. Both contenders name the same operation in the same scope.
fn candidate(
    owner_id: OwnerId,
    now: DateTime<Utc>,
) -> Result<OperationOwnerLease, OperationLeaseError> {
    let operation_id = OperationId::from([0x0a; 32]);
    let scope_ref = OperationConflictScopeReference::from([0x5c; 32]);
    OperationOwnerLease::new(
        operation_id,
        scope_ref,
        owner_id,
        OperationLeaseToken::random(),
        now,
        now + LEASE,
    )
}

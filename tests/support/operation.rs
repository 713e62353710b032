//! Leases to play with, and a storage that vanishes afterwards.

#![allow(dead_code, reason = "each test binary uses some of it")]

use std::fs;
use std::path::{Path, PathBuf};

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    OperationConflictScopeReference, OperationId, OperationLeaseFilesystemRepository,
    OperationLeaseStorage, OperationLeaseToken, OperationOwnerLease, OwnerId,
};
use tempfile::TempDir;

pub fn scope(n: u8) -> OperationConflictScopeReference {
    [n; 32].into()
}

/// Never the same digits as a scope: an operation named like a scope would make that scope's record look retired.
pub fn operation(n: u8) -> OperationId {
    [0xa0 + n; 32].into()
}

pub fn owner(n: u8) -> OwnerId {
    [n; 32].into()
}

pub fn token(n: u8) -> OperationLeaseToken {
    [n; 32].into()
}

/// A time of day long ago, in seconds.
pub fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

/// The lease of owner `n` on operation 1 in scope 1.
pub fn lease(n: u8, acquired: i64, expires: i64) -> OperationOwnerLease {
    OperationOwnerLease::new(
        operation(1),
        scope(1),
        owner(n),
        token(n),
        at(acquired),
        at(expires),
    )
    .unwrap()
}

/// The lease of owner `n`, beginning now and living for `seconds`.
pub fn lease_from_now(n: u8, seconds: i64) -> (OperationOwnerLease, DateTime<Utc>) {
    let now = Utc::now();
    let expires = now + TimeDelta::seconds(seconds);
    let lease =
        OperationOwnerLease::new(operation(1), scope(1), owner(n), token(n), now, expires).unwrap();
    (lease, now)
}

pub struct Fixture {
    pub root: TempDir,
    pub leases: OperationLeaseFilesystemRepository,
}

impl Fixture {
    pub fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let leases = OperationLeaseFilesystemRepository::new(root.path());
        Self { root, leases }
    }

    pub fn storage(&self) -> &OperationLeaseStorage {
        self.leases.storage()
    }

    pub fn journals(&self) -> PathBuf {
        self.root.path().join("operation-journals")
    }

    pub fn record(&self) -> PathBuf {
        self.storage().path_for(&scope(1))
    }

    pub fn bytes(&self) -> Vec<u8> {
        fs::read(self.record()).unwrap()
    }
}

/// The names in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// A number from the environment, for longer runs than the everyday ones.
pub fn rounds(variable: &str, default: usize) -> usize {
    match std::env::var(variable) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{variable} is no number: {text}")),
        Err(_) => default,
    }
}

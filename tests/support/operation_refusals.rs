//! Every call must refuse, and nothing may change.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use leasehold::operation::{OperationLeaseError as Error, OperationLeaseFilesystemRepository};

use crate::support::{Fixture, at, lease, operation, scope};

/// What must not change about a file that is refused.
#[derive(Debug, PartialEq)]
pub struct Trace {
    bytes: Option<Vec<u8>>,
    pub mode: u32,
    links: u64,
    modified: SystemTime,
    inode: u64,
}

pub fn trace(path: &Path) -> Trace {
    let meta = fs::symlink_metadata(path).unwrap();
    Trace {
        bytes: meta.is_file().then(|| fs::read(path).unwrap()),
        mode: meta.permissions().mode(),
        links: meta.nlink(),
        modified: meta.modified().unwrap(),
        inode: meta.ino(),
    }
}

/// Every call that reads the record, one after the other, each within a second.
pub fn refusals(leases: &OperationLeaseFilesystemRepository) -> Vec<Error> {
    let start = Instant::now();
    let (mine, longer) = (lease(1, 0, 10), lease(1, 0, 20));
    let errors = vec![
        leases.inspect(&scope(1), &operation(1), at(1)).unwrap_err(),
        leases.acquire(&lease(2, 1, 5), at(1)).unwrap_err(),
        leases.compare_and_swap(&mine, &longer, at(1)).unwrap_err(),
        leases.release(&mine, at(1)).unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.current(&scope(1)).map(drop))
            .unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.replace(&scope(1), &operation(1), None, at(1)))
            .unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.require_live_exact(&scope(1), &operation(1), &mine, at(1)))
            .unwrap_err(),
    ];
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "took {:?}",
        start.elapsed()
    );
    errors
}

/// A fixture with a sound record in place, and that record's text.
pub fn with_record() -> (Fixture, String) {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    let text = String::from_utf8(it.bytes()).unwrap();
    (it, text)
}

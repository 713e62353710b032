//! The lock and the directory: exclusion, bounded waiting, replaced files, modes, paths.

#[path = "support/operation.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::operation::{
    OperationLeaseError as Error, OperationLeaseFilesystemRepository,
    OperationLeaseObservation as Observation, OperationLeaseResult as Outcome,
    OperationLeaseStorage,
};
use support::{Fixture, at, lease, names, operation, scope};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn one_range_of_lock_timeouts_is_accepted() {
    for accepted in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_secs(86_400),
    ] {
        assert!(
            OperationLeaseStorage::new("/nowhere")
                .lock_timeout(accepted)
                .is_ok()
        );
    }
    for refused in [
        Duration::from_secs(86_401),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        let error = OperationLeaseStorage::new("/nowhere")
            .lock_timeout(refused)
            .unwrap_err();
        assert!(
            matches!(
                error,
                Error::Setting {
                    setting: "lock_timeout",
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn two_handles_and_two_threads_exclude_each_other() {
    let it = Fixture::new();
    let other = OperationLeaseFilesystemRepository::new(it.root.path());
    let inside = AtomicBool::new(false);
    let start = Barrier::new(6);
    thread::scope(|scope| {
        for storage in [
            it.storage(),
            other.storage(),
            it.storage(),
            other.storage(),
            it.storage(),
            other.storage(),
        ] {
            scope.spawn(|| {
                start.wait();
                for _ in 0..50 {
                    let _locked = storage.lock().unwrap();
                    assert!(!inside.swap(true, Ordering::SeqCst), "two hold the lock");
                    thread::yield_now();
                    inside.store(false, Ordering::SeqCst);
                }
            });
        }
    });
}

#[test]
fn waiting_for_the_lock_is_bounded_and_ends_in_a_typed_error() {
    let it = Fixture::new();
    let _held = it.storage().lock().unwrap();
    for limit in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_millis(80),
    ] {
        let impatient = OperationLeaseStorage::new(it.root.path())
            .lock_timeout(limit)
            .unwrap();
        let start = Instant::now();
        let error = impatient.lock().unwrap_err();
        let took = start.elapsed();
        assert!(
            matches!(&error, Error::LockTimeout { waited, .. } if *waited >= limit),
            "{error}"
        );
        assert!(error.is_retryable());
        assert_eq!(error.path(), Some(&*impatient.lock_path()));
        assert!(
            took >= limit && took < limit + Duration::from_secs(5),
            "{took:?}"
        );
    }
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    let it = Fixture::new();
    let held = it.storage().lock().unwrap();
    let (waiting, begun) = mpsc::channel();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let other = OperationLeaseStorage::new(it.root.path());
            waiting.send(()).unwrap();
            other.lock().map(drop)
        });
        begun.recv().unwrap();
        drop(held);
        waiter.join().unwrap().unwrap();
    });
}

/// How many files of this process are open at a path.
fn handles_on(path: &Path) -> usize {
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter(|entry| {
            fs::read_link(entry.as_ref().unwrap().path()).is_ok_and(|open| open == path)
        })
        .count()
}

#[test]
fn a_lock_that_was_replaced_while_waiting_is_not_mistaken_for_the_lock() {
    let it = Fixture::new();
    it.storage().ensure_root().unwrap();
    // Somebody holds the old file, somebody else deletes it: the waiter must end up on the file at the path.
    let old = File::create(it.storage().lock_path()).unwrap();
    old.lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| it.leases.acquire(&lease(1, 0, 10), at(0)));
        // On Linux it shows when the waiter has the old file open.
        while cfg!(target_os = "linux") && handles_on(&it.storage().lock_path()) < 2 {
            thread::yield_now();
        }
        fs::remove_file(it.storage().lock_path()).unwrap();
        let new = File::create(it.storage().lock_path()).unwrap();
        drop(old);
        assert!(matches!(
            waiter.join().unwrap().unwrap(),
            Outcome::Acquired { .. }
        ));
        let in_place = fs::metadata(it.storage().lock_path()).unwrap().ino();
        assert_eq!(new.metadata().unwrap().ino(), in_place);
    });
}

#[test]
fn a_lock_file_deleted_under_its_holder_stops_the_write() {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    let before = it.bytes();
    let locked = it.storage().lock().unwrap();
    fs::remove_file(it.storage().lock_path()).unwrap();
    let error = locked
        .replace(&scope(1), &operation(1), None, at(1))
        .unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error}");
    assert_eq!(it.bytes(), before);
    assert_eq!(names(&it.journals()).len(), 1, "no temporary file is left");
}

#[test]
fn a_directory_moved_away_is_noticed() {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    let away = it.root.path().join("away");
    fs::rename(it.journals(), &away).unwrap();
    assert_eq!(
        it.leases.inspect(&scope(1), &operation(1), at(1)).unwrap(),
        Observation::Absent
    );
    let _ = it.leases.acquire(&lease(2, 1, 10), at(1)).unwrap();
    // The same with another directory in the place of the first.
    fs::rename(it.journals(), it.root.path().join("second")).unwrap();
    fs::create_dir(it.journals()).unwrap();
    assert_eq!(
        it.leases.inspect(&scope(1), &operation(1), at(1)).unwrap(),
        Observation::Absent
    );
    let _ = it.leases.acquire(&lease(3, 1, 10), at(1)).unwrap();
    let locked = it.storage().lock().unwrap();
    fs::rename(it.journals(), it.root.path().join("away too")).unwrap();
    let error = locked
        .replace(&scope(1), &operation(1), None, at(1))
        .unwrap_err();
    assert!(matches!(error, Error::LockLost { .. }), "{error}");
    drop(locked);
    fs::remove_dir_all(it.root.path()).unwrap();
    assert_eq!(
        it.leases.inspect(&scope(1), &operation(1), at(1)).unwrap(),
        Observation::Absent
    );
}

#[test]
fn a_loosened_mode_is_tightened_again() {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    fs::set_permissions(it.journals(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(it.storage().lock_path(), fs::Permissions::from_mode(0o666)).unwrap();
    let _ = it.leases.inspect(&scope(1), &operation(1), at(1)).unwrap();
    assert_eq!(mode(&it.journals()), 0o700);
    assert_eq!(mode(&it.storage().lock_path()), 0o600);
    fs::set_permissions(it.journals(), fs::Permissions::from_mode(0o777)).unwrap();
    OperationLeaseStorage::new(it.root.path())
        .ensure_root()
        .unwrap();
    assert_eq!(mode(&it.journals()), 0o700);
}

#[test]
fn paths_follow_the_published_layout() {
    let storage = OperationLeaseStorage::new("/srv/data");
    let expected = format!(
        "/srv/data/operation-journals/{}.lease.json",
        "01".repeat(32)
    );
    assert_eq!(storage.path_for(&scope(1)).to_str(), Some(&*expected));
    assert_eq!(
        storage.lock_path().to_str(),
        Some("/srv/data/operation-journals/.repository.lock")
    );
    assert!(matches!(
        OperationLeaseStorage::new("").ensure_root(),
        Err(Error::Io { .. })
    ));
}

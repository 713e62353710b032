//! Supervised runs over a real directory and the real clocks.

#[path = "support/operation.rs"]
mod support;

use std::fs;
use std::time::{Duration, Instant};

use leasehold::operation::{
    OperationLeaseError as Error, OperationLeaseFilesystemRepository, OperationLeaseStorage,
    OperationLoss, OperationRun, OperationSupervisor,
};
use support::{Fixture, at, operation, scope};

const PATIENCE: Duration = Duration::from_secs(20);

fn supervisor(it: &Fixture, lease: u64) -> OperationSupervisor<OperationLeaseFilesystemRepository> {
    let leases = OperationLeaseFilesystemRepository::new(it.root.path());
    OperationSupervisor::new(leases)
        .lease(Duration::from_millis(lease))
        .unwrap()
}

#[test]
fn a_run_keeps_its_lease_on_disk_renewed_and_keeps_others_out() {
    let it = Fixture::new();
    let run = supervisor(&it, 1000)
        .run(&scope(1), &operation(1), |held| {
            let start = Instant::now();
            let first = held.lease();
            let mut renewals = 0;
            let mut last = first.clone();
            while renewals < 4 {
                assert!(held.is_held() && start.elapsed() < PATIENCE);
                let now = held.lease();
                renewals += usize::from(now != last);
                last = now;
                std::thread::yield_now();
            }
            assert_eq!(
                (last.token(), last.acquired_at()),
                (first.token(), first.acquired_at())
            );
            assert!(last.expires_at() > first.expires_at());
            match supervisor(&it, 1000)
                .run(&scope(1), &operation(2), |_| ())
                .unwrap()
            {
                OperationRun::Busy { current } => assert_eq!(current.token(), first.token()),
                other => panic!("{other:?}"),
            }
            let another_scope = supervisor(&it, 1000)
                .run(&scope(2), &operation(2), |_| ())
                .unwrap();
            assert!(matches!(another_scope, OperationRun::Completed { .. }));
        })
        .unwrap();
    assert!(matches!(run, OperationRun::Completed { .. }), "{run:?}");
    assert_eq!(
        it.storage().lock().unwrap().current(&scope(1)).unwrap(),
        None
    );
}

#[test]
fn a_journal_may_commit_with_the_held_lease() {
    let it = Fixture::new();
    let run = supervisor(&it, 5000)
        .run(&scope(1), &operation(1), |held| {
            let locked = it.storage().lock().unwrap();
            // The lease is read under the lock, so no renewal can slip in between.
            let lease = locked.current(&scope(1)).unwrap().unwrap();
            assert_eq!(lease.token(), held.lease().token());
            locked
                .require_live_exact(&scope(1), &operation(1), &lease, chrono::Utc::now())
                .unwrap();
        })
        .unwrap();
    assert!(matches!(run, OperationRun::Completed { .. }), "{run:?}");
}

#[test]
fn work_is_told_in_time_when_renewals_are_stuck_behind_the_lock() {
    let it = Fixture::new();
    let run = supervisor(&it, 500)
        .run(&scope(1), &operation(1), |held| {
            let locked = it.storage().lock().unwrap();
            let expires_at = held.lease().expires_at();
            assert_eq!(held.wait_lost(PATIENCE), Some(OperationLoss::Lapsed));
            let recorded = locked.current(&scope(1)).unwrap().unwrap();
            assert_eq!(recorded.token(), held.lease().token());
            let late = chrono::Utc::now() - expires_at;
            assert!(
                late < chrono::TimeDelta::seconds(5),
                "told {late} after the expiry"
            );
            drop(locked);
        })
        .unwrap();
    assert!(
        matches!(
            run,
            OperationRun::Lost {
                cause: OperationLoss::Lapsed,
                ..
            }
        ),
        "{run:?}"
    );
    assert_eq!(
        it.storage().lock().unwrap().current(&scope(1)).unwrap(),
        None,
        "released all the same"
    );
}

#[test]
fn work_is_told_when_its_record_is_replaced() {
    let it = Fixture::new();
    let run = supervisor(&it, 600)
        .run(&scope(1), &operation(1), |held| {
            it.storage()
                .lock()
                .unwrap()
                .replace(&scope(1), &operation(1), None, at(0))
                .unwrap();
            held.wait_lost(PATIENCE)
        })
        .unwrap();
    match run {
        OperationRun::Lost { value, cause } => {
            assert_eq!(cause, OperationLoss::Superseded { current: None });
            assert_eq!(value, Some(cause));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lease_that_cannot_be_released_is_reported_beside_the_value() {
    let it = Fixture::new();
    let run = supervisor(&it, 60_000)
        .run(&scope(1), &operation(1), |_| {
            fs::write(it.record(), "{").unwrap();
            5
        })
        .unwrap();
    assert!(
        matches!(
            run,
            OperationRun::Unreleased {
                value: 5,
                error: Error::Record { .. }
            }
        ),
        "{run:?}"
    );
}

#[test]
fn work_that_cannot_get_the_lock_does_not_run() {
    let it = Fixture::new();
    let _locked = it.storage().lock().unwrap();
    let storage = OperationLeaseStorage::new(it.root.path())
        .lock_timeout(Duration::ZERO)
        .unwrap();
    let supervisor = OperationSupervisor::new(OperationLeaseFilesystemRepository::from(storage));
    let error = supervisor
        .run(&scope(1), &operation(1), |_| panic!("must not run"))
        .unwrap_err();
    assert!(matches!(error, Error::LockTimeout { .. }), "{error}");
}

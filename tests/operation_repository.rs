//! The documented calls over a real directory: results, format, lock, settings.

#[path = "support/operation.rs"]
mod support;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    InvalidInstant, NotHeldReason, OperationConflictScopeReference, OperationId,
    OperationLeaseError as Error, OperationLeaseFilesystemRepository,
    OperationLeaseObservation as Observation, OperationLeaseRepository,
    OperationLeaseResult as Outcome, OperationLeaseStorage, OperationLeaseToken,
    OperationOwnerLease, OwnerId, TransitionFault,
};
use support::{Fixture, at, lease, names, operation, owner, scope, token};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_lease_lives_through_acquire_renew_expiry_takeover_and_release() {
    let it = Fixture::new();
    assert_eq!(
        it.leases.inspect(&scope(1), &operation(1), at(0)).unwrap(),
        Observation::Absent
    );
    let first = lease(1, 0, 10);
    assert!(matches!(
        it.leases.acquire(&first, at(0)).unwrap(),
        Outcome::Acquired { .. }
    ));
    assert!(matches!(
        it.leases.acquire(&lease(2, 5, 15), at(5)).unwrap(),
        Outcome::Conflict { .. }
    ));
    let renewed = first.with_expiry(at(20)).unwrap();
    assert!(matches!(
        it.leases.compare_and_swap(&first, &renewed, at(9)).unwrap(),
        Outcome::Renewed { .. }
    ));
    assert!(matches!(
        it.leases.acquire(&lease(2, 20, 30), at(20)).unwrap(),
        Outcome::Expired { .. }
    ));
    let second = lease(2, 20, 30);
    assert!(matches!(
        it.leases
            .compare_and_swap(&renewed, &second, at(20))
            .unwrap(),
        Outcome::TakenOver { .. }
    ));
    match it.leases.release(&renewed, at(21)).unwrap() {
        Outcome::OwnerLost { current, .. } => assert_eq!(current, Some(second.clone())),
        other => panic!("{other:?}"),
    }
    assert!(matches!(
        it.leases.release(&second, at(22)).unwrap(),
        Outcome::Released { .. }
    ));
    assert!(
        it.record().exists(),
        "release persists an absent successor and deletes nothing"
    );
    assert_eq!(
        it.leases.inspect(&scope(1), &operation(1), at(23)).unwrap(),
        Observation::Absent
    );
}

#[test]
fn the_port_can_be_used_through_the_trait() {
    fn absent(leases: &dyn OperationLeaseRepository) -> bool {
        matches!(
            leases.inspect(&scope(1), &operation(1), at(0)),
            Ok(Observation::Absent)
        )
    }
    assert!(absent(&Fixture::new().leases));
}

#[test]
fn refusals_write_nothing() {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    let before = (it.bytes(), fs::metadata(it.record()).unwrap().ino());
    let _ = it.leases.acquire(&lease(2, 5, 15), at(5)).unwrap();
    let _ = it.leases.release(&lease(2, 0, 10), at(5)).unwrap();
    let _ = it
        .leases
        .compare_and_swap(&lease(2, 0, 10), &lease(2, 0, 20), at(5))
        .unwrap();
    let other_scope =
        OperationOwnerLease::new(operation(1), scope(2), owner(1), token(1), at(0), at(20))
            .unwrap();
    for successor in [other_scope, lease(1, 0, 9), lease(2, 5, 20)] {
        let refused = it
            .leases
            .compare_and_swap(&lease(1, 0, 10), &successor, at(5))
            .unwrap_err();
        assert!(matches!(refused, Error::Transition(_)), "{refused}");
    }
    assert_eq!(
        before,
        (it.bytes(), fs::metadata(it.record()).unwrap().ino())
    );
}

#[test]
fn a_successor_in_another_scope_is_refused_before_any_file_is_made() {
    let it = Fixture::new();
    let other = OperationOwnerLease::new(operation(1), scope(2), owner(1), token(1), at(0), at(20))
        .unwrap();
    let refused = it
        .leases
        .compare_and_swap(&lease(1, 0, 10), &other, at(5))
        .unwrap_err();
    assert!(matches!(
        refused,
        Error::Transition(TransitionFault::ScopeChanged)
    ));
    assert!(!it.journals().exists());
}

#[test]
fn require_live_exact_has_a_distinct_reason_for_each_refusal() {
    let it = Fixture::new();
    let held = lease(1, 10, 20);
    let reason = |lease: &OperationOwnerLease, sc: u8, op: u8, now| {
        let locked = it.storage().lock().unwrap();
        match locked.require_live_exact(&scope(sc), &operation(op), lease, at(now)) {
            Ok(()) => None,
            Err(Error::NotHeld { reason, scope_ref }) => {
                assert_eq!(scope_ref, scope(sc));
                Some(reason)
            }
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!(reason(&held, 1, 1, 15), Some(NotHeldReason::Absent));
    let _ = it.leases.acquire(&held, at(10)).unwrap();
    assert_eq!(reason(&held, 1, 1, 10), None);
    assert_eq!(reason(&held, 2, 1, 15), Some(NotHeldReason::ForeignLease));
    assert_eq!(reason(&held, 1, 2, 15), Some(NotHeldReason::ForeignLease));
    let other_operation =
        OperationOwnerLease::new(operation(2), scope(1), owner(1), token(1), at(10), at(20))
            .unwrap();
    assert_eq!(
        reason(&other_operation, 1, 2, 15),
        Some(NotHeldReason::OtherOperation)
    );
    assert_eq!(
        reason(&lease(1, 10, 21), 1, 1, 15),
        Some(NotHeldReason::NotExact)
    );
    assert_eq!(
        reason(&lease(2, 10, 20), 1, 1, 15),
        Some(NotHeldReason::NotExact)
    );
    assert_eq!(reason(&held, 1, 1, 9), Some(NotHeldReason::NotYetActive));
    assert_eq!(reason(&held, 1, 1, 20), Some(NotHeldReason::Expired));
    let _ = it.leases.release(&held, at(15)).unwrap();
    assert_eq!(reason(&held, 1, 1, 15), Some(NotHeldReason::Absent));
}

#[test]
fn a_retired_record_bars_inspect_and_acquire_and_is_not_opened() {
    let it = Fixture::new();
    let held = lease(2, 0, 10);
    let named_like_its_scope = OperationId::from([1; 32]);
    let own = OperationOwnerLease::new(
        named_like_its_scope,
        scope(1),
        owner(1),
        token(1),
        at(0),
        at(1),
    )
    .unwrap();
    let _ = it.leases.acquire(&own, at(0)).unwrap();
    assert!(
        it.leases
            .inspect(&scope(1), &named_like_its_scope, at(0))
            .is_ok(),
        "a scope's own record is not retired"
    );

    let retired = it.journals().join(format!("{}.lease.json", operation(3)));
    std::os::unix::fs::symlink("nowhere", &retired).unwrap();
    let of_3 =
        OperationOwnerLease::new(operation(3), scope(4), owner(1), token(1), at(0), at(1)).unwrap();
    for error in [
        it.leases
            .inspect(&scope(4), &operation(3), at(0))
            .unwrap_err(),
        it.leases.acquire(&of_3, at(0)).unwrap_err(),
        it.storage()
            .lock()
            .unwrap()
            .refuse_retired_operation_path(&scope(4), &operation(3))
            .unwrap_err(),
    ] {
        assert!(
            matches!(&error, Error::Retired { path } if *path == retired),
            "{error}"
        );
        assert_eq!(error.path(), Some(&*retired));
    }
    assert!(matches!(
        it.leases.release(&held, at(1)).unwrap(),
        Outcome::OwnerLost { .. }
    ));
}

#[test]
fn a_journal_can_commit_under_the_same_lock() {
    let it = Fixture::new();
    let held = lease(1, 0, 10);
    let _ = it.leases.acquire(&held, at(0)).unwrap();
    let locked = it.storage().lock().unwrap();
    locked
        .require_live_exact(&scope(1), &operation(1), &held, at(5))
        .unwrap();
    let longer = held.with_expiry(at(30)).unwrap();
    locked
        .replace(&scope(1), &operation(1), Some(&longer), at(5))
        .unwrap();
    assert_eq!(locked.current(&scope(1)).unwrap(), Some(longer.clone()));
    let foreign = locked
        .replace(&scope(1), &operation(2), Some(&longer), at(5))
        .unwrap_err();
    assert!(matches!(foreign, Error::ForeignReplacement));
    let foreign = locked
        .replace(&scope(2), &operation(1), Some(&longer), at(5))
        .unwrap_err();
    assert!(matches!(foreign, Error::ForeignReplacement));
    let early = locked
        .replace(&scope(1), &operation(1), Some(&lease(1, 6, 9)), at(5))
        .unwrap_err();
    assert!(matches!(
        early,
        Error::Transition(TransitionFault::ObservedBeforeAcquisition)
    ));
    locked
        .replace(&scope(1), &operation(1), None, at(5))
        .unwrap();
    assert_eq!(locked.current(&scope(1)).unwrap(), None);
}

#[test]
fn times_below_a_microsecond_survive_the_round_trip_as_equal() {
    let it = Fixture::new();
    let now = DateTime::from_timestamp(1_700_000_000, 123_456_789).unwrap();
    let held = OperationOwnerLease::new(
        operation(1),
        scope(1),
        owner(1),
        token(1),
        now,
        now + TimeDelta::nanoseconds(1999),
    )
    .unwrap();
    let _ = it.leases.acquire(&held, now).unwrap();
    assert_eq!(
        it.leases
            .inspect(&scope(1), &operation(1), now)
            .unwrap()
            .current(),
        Some(&held)
    );
    let longer = held
        .with_expiry(now + TimeDelta::nanoseconds(2999))
        .unwrap();
    assert!(matches!(
        it.leases.compare_and_swap(&held, &longer, now).unwrap(),
        Outcome::Renewed { .. }
    ));
    assert!(matches!(
        it.leases.release(&longer, now).unwrap(),
        Outcome::Released { .. }
    ));
}

#[test]
fn extreme_times_are_errors_and_no_panics() {
    let it = Fixture::new();
    let make = |from, until| {
        OperationOwnerLease::new(operation(1), scope(1), owner(1), token(1), from, until)
    };
    for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
        for error in [
            make(extreme, at(1)).unwrap_err(),
            make(at(1), extreme).unwrap_err(),
            it.leases
                .inspect(&scope(1), &operation(1), extreme)
                .unwrap_err(),
            it.leases.acquire(&lease(1, 0, 1), extreme).unwrap_err(),
            it.leases.release(&lease(1, 0, 1), extreme).unwrap_err(),
        ] {
            assert!(
                matches!(
                    error,
                    Error::Instant {
                        reason: InvalidInstant::OutOfRange,
                        ..
                    }
                ),
                "{error}"
            );
        }
    }
    for (from, until) in [
        (at(1), at(1)),
        (at(2), at(1)),
        (at(1), at(1) + TimeDelta::nanoseconds(999)),
    ] {
        assert!(matches!(make(from, until), Err(Error::Window { .. })));
    }
    let first: DateTime<Utc> = "0001-01-01T00:00:00Z".parse().unwrap();
    let last: DateTime<Utc> = "9999-12-31T23:59:59.999999999Z".parse().unwrap();
    let forever = make(first, last).unwrap();
    let _ = it.leases.acquire(&forever, first).unwrap();
    assert!(it.leases.inspect(&scope(1), &operation(1), last).is_ok());
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
fn identifiers_are_exactly_64_lowercase_hexadecimal_characters() {
    let good = "0123456789abcdef".repeat(4);
    assert_eq!(good.parse::<OperationId>().unwrap().to_string(), good);
    assert_eq!(
        good.parse::<OperationConflictScopeReference>()
            .unwrap()
            .to_string(),
        good
    );
    assert_eq!(good.parse::<OwnerId>().unwrap().to_string(), good);
    assert_eq!(
        good.parse::<OperationLeaseToken>().unwrap().to_string(),
        good
    );
    for bad in [
        String::new(),
        good[1..].to_owned(),
        format!("{good}0"),
        good.to_uppercase(),
        format!(" {}", &good[1..]),
        good.replace('0', "g"),
        format!("{}é", &good[2..]),
        format!("{}\n", &good[1..]),
    ] {
        assert!(bad.parse::<OperationId>().is_err(), "{bad:?}");
        let message = bad.parse::<OperationLeaseToken>().unwrap_err().to_string();
        assert!(
            bad.len() < 8 || !message.contains(&bad),
            "a token never shows in an error"
        );
    }
}

#[test]
fn tokens_are_random_and_stay_out_of_debug() {
    let token = OperationLeaseToken::random();
    assert_ne!(token, OperationLeaseToken::random());
    let now = Utc::now();
    let later = now + TimeDelta::seconds(1);
    let lease = OperationOwnerLease::new(
        OperationId::random(),
        scope(1),
        OwnerId::random(),
        token,
        now,
        later,
    )
    .unwrap();
    assert!(!format!("{lease:?}").contains(&token.to_string()));
    assert_eq!(
        token.to_string().parse::<OperationLeaseToken>().unwrap(),
        token
    );
}

#[test]
fn a_lease_is_json_in_and_out() {
    let held = lease(1, 0, 10);
    let text = serde_json::to_string(&held).unwrap();
    assert_eq!(
        serde_json::from_str::<OperationOwnerLease>(&text).unwrap(),
        held
    );
    assert!(
        serde_json::from_str::<OperationOwnerLease>(&text.replace("owner_id", "owner")).is_err()
    );
    assert!(
        serde_json::from_str::<OperationOwnerLease>(&text.replacen("2023", "2024", 1)).is_err()
    );
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

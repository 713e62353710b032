//! The documented calls over a real directory.

#[path = "support/operation.rs"]
mod support;

use std::fs::{self};
use std::os::unix::fs::MetadataExt;

use leasehold::operation::{
    NotHeldReason, OperationId, OperationLeaseError as Error,
    OperationLeaseObservation as Observation, OperationLeaseRepository,
    OperationLeaseResult as Outcome, OperationOwnerLease, TransitionFault,
};
use support::{Fixture, at, lease, operation, owner, scope, token};

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

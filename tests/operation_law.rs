//! The transition law, as a table of every combination: what is recorded, what the caller shows, which call.

#[path = "support/operation.rs"]
mod support;

use leasehold::operation::{
    OperationLeaseObservation as Observation, OperationLeaseRequest as Request,
    OperationLeaseResult as Outcome, OperationOwnerLease, TransitionFault as Fault, decide,
    observe,
};
use support::{at, lease, operation, owner, scope, token};

/// What is recorded when the call is made at second 100.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Recorded {
    Absent,
    Live,
    Expired,
}

/// How the caller's lease differs from the recorded one.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Shown {
    Exact,
    Stale,
    OtherOwner,
    OtherToken,
    OtherOperation,
    OtherScope,
}

const RECORDED: [Recorded; 3] = [Recorded::Absent, Recorded::Live, Recorded::Expired];
const SHOWN: [Shown; 6] = [
    Shown::Exact,
    Shown::Stale,
    Shown::OtherOwner,
    Shown::OtherToken,
    Shown::OtherOperation,
    Shown::OtherScope,
];

const NOW: i64 = 100;

fn original(recorded: Recorded) -> OperationOwnerLease {
    match recorded {
        Recorded::Live | Recorded::Absent => lease(1, 50, 150),
        Recorded::Expired => lease(1, 50, 100),
    }
}

fn variant(of: &OperationOwnerLease, shown: Shown) -> OperationOwnerLease {
    let (mut op, mut sc, mut ow, mut to) =
        (of.operation_id(), of.scope_ref(), of.owner_id(), of.token());
    let mut expires = of.expires_at();
    match shown {
        Shown::Exact => {}
        Shown::Stale => expires = at(99),
        Shown::OtherOwner => ow = owner(9),
        Shown::OtherToken => to = token(9),
        Shown::OtherOperation => op = operation(9),
        Shown::OtherScope => sc = scope(9),
    }
    OperationOwnerLease::new(op, sc, ow, to, of.acquired_at(), expires).unwrap()
}

#[test]
fn compare_and_swap_and_release_win_for_the_exact_lease_only() {
    for recorded in RECORDED {
        let there = original(recorded);
        let current = (recorded != Recorded::Absent).then_some(&there);
        for shown in SHOWN {
            let mine = variant(&there, shown);
            let renewal = mine.with_expiry(at(200)).unwrap();
            let takeover = OperationOwnerLease::new(
                operation(2),
                mine.scope_ref(),
                owner(2),
                token(2),
                at(NOW),
                at(200),
            )
            .unwrap();
            let lost =
                Outcome::clone(
                    &match decide(Request::Release { predecessor: &mine }, None, at(NOW)) {
                        Ok(lost) => lost,
                        Err(fault) => panic!("{fault}"),
                    },
                );
            assert_eq!(lost.current(), None);
            let case = format!("{recorded:?} {shown:?}");

            let renew = Request::CompareAndSwap {
                predecessor: &mine,
                successor: &renewal,
            };
            let take = Request::CompareAndSwap {
                predecessor: &mine,
                successor: &takeover,
            };
            let release = Request::Release { predecessor: &mine };
            let exact = current == Some(&mine);
            assert_eq!(
                exact,
                recorded != Recorded::Absent && shown == Shown::Exact,
                "{case}"
            );
            if !exact {
                for request in [renew, take, release] {
                    match decide(request, current, at(NOW)).unwrap() {
                        Outcome::OwnerLost {
                            predecessor,
                            current: found,
                            ..
                        } => {
                            assert_eq!(predecessor, mine, "{case}");
                            assert_eq!(found.as_ref(), current, "{case}");
                        }
                        other => panic!("{case}: {other:?}"),
                    }
                }
                continue;
            }
            let live = recorded == Recorded::Live;
            match decide(renew, current, at(NOW)) {
                Ok(Outcome::Renewed {
                    predecessor,
                    current,
                    ..
                }) if live => {
                    assert_eq!((predecessor, current), (mine.clone(), renewal));
                }
                Err(Fault::TakeoverKeepsOwner) if !live => {}
                other => panic!("{case}: {other:?}"),
            }
            match decide(take, current, at(NOW)) {
                Ok(Outcome::TakenOver {
                    predecessor,
                    current,
                    ..
                }) if !live => {
                    assert_eq!((predecessor, current), (mine.clone(), takeover));
                }
                Err(Fault::RenewalChangesOperation) if live => {}
                other => panic!("{case}: {other:?}"),
            }
            match decide(release, current, at(NOW)).unwrap() {
                released @ Outcome::Released { .. } => {
                    assert_eq!(released.predecessor(), Some(&mine));
                    assert_eq!(released.to_record(), Some((mine.operation_id(), None)));
                }
                other => panic!("{case}: {other:?}"),
            }
        }
    }
}

#[test]
fn acquire_wins_an_absent_lease_only() {
    for recorded in RECORDED {
        let there = original(recorded);
        let current = (recorded != Recorded::Absent).then_some(&there);
        for shown in SHOWN {
            let mine = variant(&there, shown);
            let candidate = OperationOwnerLease::new(
                mine.operation_id(),
                mine.scope_ref(),
                mine.owner_id(),
                mine.token(),
                at(NOW),
                at(200),
            )
            .unwrap();
            let outcome = decide(
                Request::Acquire {
                    candidate: &candidate,
                },
                current,
                at(NOW),
            )
            .unwrap();
            match (recorded, &outcome) {
                (Recorded::Absent, Outcome::Acquired { current, .. }) => {
                    assert_eq!(*current, candidate);
                    assert_eq!(
                        outcome.to_record(),
                        Some((candidate.operation_id(), Some(&candidate)))
                    );
                }
                (Recorded::Live, Outcome::Conflict { current, .. }) => assert_eq!(*current, there),
                (Recorded::Expired, Outcome::Expired { predecessor, .. }) => {
                    assert_eq!(*predecessor, there)
                }
                other => panic!("{shown:?}: {other:?}"),
            }
            if recorded != Recorded::Absent {
                assert_eq!(outcome.to_record(), None);
            }
        }
    }
}

#[test]
fn inspect_tells_absent_live_and_expired_apart_to_the_microsecond() {
    let there = lease(1, 50, 100);
    let tick = chrono::TimeDelta::microseconds(1);
    assert_eq!(observe(None, at(NOW)), Ok(Observation::Absent));
    assert!(matches!(
        observe(Some(&there), at(50)),
        Ok(Observation::Active { .. })
    ));
    assert!(matches!(
        observe(Some(&there), at(100) - tick),
        Ok(Observation::Active { .. })
    ));
    assert!(matches!(
        observe(Some(&there), at(100)),
        Ok(Observation::Expired { .. })
    ));
    assert_eq!(
        observe(Some(&there), at(50) - tick),
        Err(Fault::ObservedBeforeAcquisition)
    );
    assert_eq!(
        observe(Some(&there), at(60)).unwrap().current(),
        Some(&there)
    );
}

#[test]
fn every_part_of_the_law_has_its_own_fault() {
    let live = lease(1, 50, 150);
    let dead = lease(1, 50, 100);
    let make = |op, sc, ow, to, from, until| {
        OperationOwnerLease::new(
            operation(op),
            scope(sc),
            owner(ow),
            token(to),
            at(from),
            at(until),
        )
        .unwrap()
    };
    let swap = |predecessor: &OperationOwnerLease, successor: &OperationOwnerLease, now| {
        decide(
            Request::CompareAndSwap {
                predecessor,
                successor,
            },
            Some(predecessor),
            at(now),
        )
        .unwrap_err()
    };
    for (successor, fault) in [
        (make(1, 2, 1, 1, 50, 200), Fault::ScopeChanged),
        (make(2, 1, 1, 1, 50, 200), Fault::RenewalChangesOperation),
        (make(1, 1, 2, 1, 50, 200), Fault::RenewalChangesOwner),
        (make(1, 1, 1, 2, 50, 200), Fault::RenewalChangesToken),
        (make(1, 1, 1, 1, 51, 200), Fault::RenewalChangesAcquisition),
        (make(1, 1, 1, 1, 50, 150), Fault::RenewalDoesNotExtend),
        (make(1, 1, 1, 1, 50, 149), Fault::RenewalDoesNotExtend),
    ] {
        assert_eq!(swap(&live, &successor, NOW), fault, "{successor:?}");
    }
    for (successor, fault) in [
        (make(1, 2, 2, 2, 100, 200), Fault::ScopeChanged),
        (make(1, 1, 1, 2, 100, 200), Fault::TakeoverKeepsOwner),
        (make(1, 1, 2, 1, 100, 200), Fault::TakeoverKeepsToken),
        (make(1, 1, 2, 2, 99, 200), Fault::NotAcquiredAtObservation),
        (make(1, 1, 2, 2, 101, 200), Fault::NotAcquiredAtObservation),
    ] {
        assert_eq!(swap(&dead, &successor, NOW), fault, "{successor:?}");
    }
    assert_eq!(
        swap(&live, &live.with_expiry(at(200)).unwrap(), 49),
        Fault::ObservedBeforeAcquisition
    );
    let release = Request::Release { predecessor: &live };
    assert_eq!(
        decide(release, Some(&live), at(49)),
        Err(Fault::ObservedBeforeAcquisition)
    );
    let acquire = Request::Acquire { candidate: &live };
    for now in [49, 51] {
        assert_eq!(
            decide(acquire, None, at(now)),
            Err(Fault::NotAcquiredAtObservation)
        );
    }
}

#[test]
fn a_call_that_loses_gets_a_result_even_when_its_clock_was_read_before_the_winner_began() {
    let winner = lease(2, 101, 200);
    let mine = lease(1, 50, 100);
    let late = lease(3, 100, 200);
    for request in [
        Request::CompareAndSwap {
            predecessor: &mine,
            successor: &late,
        },
        Request::Release { predecessor: &mine },
    ] {
        assert!(matches!(
            decide(request, Some(&winner), at(NOW)),
            Ok(Outcome::OwnerLost { .. })
        ));
    }
    let acquire = Request::Acquire { candidate: &late };
    assert!(matches!(
        decide(acquire, Some(&winner), at(NOW)),
        Ok(Outcome::Conflict { .. })
    ));
}

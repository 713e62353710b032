//! Leases as values: identifiers, times, JSON.

#[path = "support/operation.rs"]
mod support;

use chrono::{DateTime, TimeDelta, Utc};
use leasehold::operation::{
    InvalidInstant, OperationConflictScopeReference, OperationId, OperationLeaseError as Error,
    OperationLeaseResult as Outcome, OperationLeaseToken, OperationOwnerLease, OwnerId,
};
use support::{Fixture, at, lease, operation, owner, scope, token};

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

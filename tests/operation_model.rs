//! Random histories of calls against a plain model: one optional lease per scope.

#[path = "support/operation.rs"]
mod support;

use std::collections::HashMap;

use leasehold::operation::{
    OperationConflictScopeReference, OperationLeaseError as Error,
    OperationLeaseFilesystemRepository, OperationLeaseObservation as Observation,
    OperationLeaseResult as Outcome, OperationOwnerLease,
};
use proptest::prelude::*;
use support::{Fixture, at, operation, owner, rounds, scope, token};

#[derive(Clone, Debug)]
enum Call {
    Inspect {
        scope: u8,
        operation: u8,
    },
    Acquire(Lease),
    Swap {
        predecessor: Shown,
        successor: Lease,
    },
    Renew {
        by: i64,
    },
    TakeOver {
        owner: u8,
    },
    Release(Shown),
    Reopen,
}

/// A lease with small numbers, so that histories meet themselves.
#[derive(Clone, Debug)]
struct Lease {
    operation: u8,
    scope: u8,
    owner: u8,
    token: u8,
    from: i64,
    length: i64,
}

impl Lease {
    fn build(&self, now: i64) -> OperationOwnerLease {
        let from = now + self.from;
        OperationOwnerLease::new(
            operation(self.operation),
            scope(self.scope),
            owner(self.owner),
            token(self.token),
            at(from),
            at(from + self.length),
        )
        .unwrap()
    }
}

/// What the caller shows as its predecessor: the recorded lease of scope 1, or anything.
#[derive(Clone, Debug)]
enum Shown {
    Current,
    Other(Lease),
}

fn lease() -> impl Strategy<Value = Lease> {
    let begin = prop_oneof![4 => Just(0_i64), 1 => -2..3_i64];
    (1..3_u8, 1..3_u8, 1..4_u8, 1..4_u8, begin, 1..6_i64).prop_map(
        |(operation, scope, owner, token, from, length)| Lease {
            operation,
            scope,
            owner,
            token,
            from,
            length,
        },
    )
}

fn shown() -> impl Strategy<Value = Shown> {
    prop_oneof![3 => Just(Shown::Current), 1 => lease().prop_map(Shown::Other)]
}

fn call() -> impl Strategy<Value = Call> {
    prop_oneof![
        1 => (1..3_u8, 1..3_u8).prop_map(|(scope, operation)| Call::Inspect { scope, operation }),
        3 => lease().prop_map(Call::Acquire),
        3 => (shown(), lease()).prop_map(|(predecessor, successor)| Call::Swap { predecessor, successor }),
        2 => (0..5_i64).prop_map(|by| Call::Renew { by }),
        2 => (1..4_u8).prop_map(|owner| Call::TakeOver { owner }),
        1 => shown().prop_map(Call::Release),
        1 => Just(Call::Reopen),
    ]
}

/// The model: told in its own words, not by the crate's law.
#[derive(Default)]
struct Model(HashMap<OperationConflictScopeReference, OperationOwnerLease>);

impl Model {
    fn acquire(&mut self, new: &OperationOwnerLease, now: i64) -> &'static str {
        match self.0.get(&new.scope_ref()) {
            Some(held) if held.expires_at() > at(now) => "conflict",
            Some(_) => "expired",
            None if new.acquired_at() != at(now) => "error",
            None => {
                self.0.insert(new.scope_ref(), new.clone());
                "acquired"
            }
        }
    }

    fn swap(
        &mut self,
        old: &OperationOwnerLease,
        new: &OperationOwnerLease,
        now: i64,
    ) -> &'static str {
        if old.scope_ref() != new.scope_ref() {
            return "error";
        }
        if self.0.get(&old.scope_ref()) != Some(old) {
            return "lost";
        }
        let same = |new: &OperationOwnerLease| {
            (
                new.operation_id(),
                new.owner_id(),
                new.token(),
                new.acquired_at(),
            ) == (
                old.operation_id(),
                old.owner_id(),
                old.token(),
                old.acquired_at(),
            )
        };
        let outcome = if at(now) < old.acquired_at() {
            "error"
        } else if at(now) < old.expires_at() {
            if same(new) && new.expires_at() > old.expires_at() {
                "renewed"
            } else {
                "error"
            }
        } else if new.owner_id() != old.owner_id()
            && new.token() != old.token()
            && new.acquired_at() == at(now)
        {
            "taken over"
        } else {
            "error"
        };
        if outcome != "error" {
            self.0.insert(new.scope_ref(), new.clone());
        }
        outcome
    }

    fn release(&mut self, old: &OperationOwnerLease, now: i64) -> &'static str {
        if self.0.get(&old.scope_ref()) != Some(old) {
            return "lost";
        }
        if at(now) < old.acquired_at() {
            return "error";
        }
        self.0.remove(&old.scope_ref());
        "released"
    }
}

fn word(outcome: &Result<Outcome, Error>) -> &'static str {
    match outcome {
        Ok(Outcome::Acquired { .. }) => "acquired",
        Ok(Outcome::Renewed { .. }) => "renewed",
        Ok(Outcome::Released { .. }) => "released",
        Ok(Outcome::Conflict { .. }) => "conflict",
        Ok(Outcome::Expired { .. }) => "expired",
        Ok(Outcome::TakenOver { .. }) => "taken over",
        Ok(Outcome::OwnerLost { .. }) => "lost",
        Err(Error::Transition(_)) => "error",
        Err(other) => panic!("{other}"),
    }
}

fn play(history: &[(i64, Call)]) {
    let it = Fixture::new();
    let mut leases = it.leases.clone();
    let mut model = Model::default();
    let mut now = 100;
    for (step, call) in history {
        now += step;
        let current = model.0.get(&scope(1)).cloned();
        let show = |shown: &Shown| match shown {
            Shown::Current => current.clone(),
            Shown::Other(lease) => Some(lease.build(now)),
        };
        let (expected, found) = match call {
            Call::Reopen => {
                leases = OperationLeaseFilesystemRepository::new(it.root.path());
                continue;
            }
            Call::Inspect {
                scope: s,
                operation: o,
            } => {
                let held = model.0.get(&scope(*s));
                let found = leases.inspect(&scope(*s), &operation(*o), at(now));
                match (held, &found) {
                    (None, Ok(Observation::Absent)) => {}
                    (Some(held), Ok(Observation::Active { current, .. })) => {
                        assert!(current == held && held.is_live_at(at(now)));
                    }
                    (Some(held), Ok(Observation::Expired { current, .. })) => {
                        assert!(current == held && held.expires_at() <= at(now));
                    }
                    (Some(held), Err(Error::Transition(_))) => {
                        assert!(held.acquired_at() > at(now))
                    }
                    other => panic!("{other:?}"),
                }
                continue;
            }
            Call::Acquire(lease) => {
                let lease = lease.build(now);
                (model.acquire(&lease, now), leases.acquire(&lease, at(now)))
            }
            Call::Swap {
                predecessor,
                successor,
            } => {
                let (Some(old), new) = (show(predecessor), successor.build(now)) else {
                    continue;
                };
                (
                    model.swap(&old, &new, now),
                    leases.compare_and_swap(&old, &new, at(now)),
                )
            }
            Call::Renew { by } => {
                let Some(old) = current.clone() else { continue };
                let new = old
                    .with_expiry(old.expires_at() + chrono::TimeDelta::seconds(*by))
                    .unwrap();
                (
                    model.swap(&old, &new, now),
                    leases.compare_and_swap(&old, &new, at(now)),
                )
            }
            Call::TakeOver { owner } => {
                let Some(old) = current.clone() else { continue };
                let new = Lease {
                    operation: 2,
                    scope: 1,
                    owner: *owner,
                    token: *owner,
                    from: 0,
                    length: 3,
                }
                .build(now);
                (
                    model.swap(&old, &new, now),
                    leases.compare_and_swap(&old, &new, at(now)),
                )
            }
            Call::Release(shown) => {
                let Some(old) = show(shown) else { continue };
                (model.release(&old, now), leases.release(&old, at(now)))
            }
        };
        assert_eq!(word(&found), expected, "{call:?} at {now}");
        for s in [1, 2] {
            let recorded = leases.storage().lock().unwrap().current(&scope(s)).unwrap();
            assert_eq!(
                recorded.as_ref(),
                model.0.get(&scope(s)),
                "after {call:?} at {now}"
            );
        }
    }
}

#[test]
fn random_histories_agree_with_a_plain_model() {
    let mut config = ProptestConfig::with_cases(rounds("LEASEHOLD_MODEL_CASES", 150) as u32);
    config.failure_persistence = None;
    let step = prop_oneof![8 => 0..3_i64, 1 => -2..8_i64];
    proptest!(config, |(history in prop::collection::vec((step, call()), 1..40))| play(&history));
}

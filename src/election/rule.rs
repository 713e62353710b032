//! Who leads after a call: a pure function of what the locked row says.
//!
//! It reads no clock and no database. The database has already judged, by its own clock and while
//! the row was locked, whether the stored lease is over.

use std::time::Duration;

use uuid::Uuid;

use super::Term;

/// What the leader row of a namespace says at one instant of the database's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nobody holds the lease, and nobody's ran out: never elected, or released.
    Vacant { term: Term },
    /// The lease of `by` ran out and nobody has taken it since.
    Lapsed { by: Uuid, term: Term },
    /// `by` holds a lease that has not run out.
    Held {
        by: Uuid,
        term: Term,
        remaining: Duration,
    },
}

/// What a caller bases its demand on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The candidate id alone, as `elect` is documented: whoever bears it holds what it holds.
    Identity,
    /// A guard that does not lead. Another guard may bear the same id, so a live lease is its own
    /// only under the term it held `last`, which nobody else was ever given.
    Guard { last: Option<Term> },
}

/// What the caller may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Take the lease under a new term.
    Take,
    /// Extend the lease under the term it has.
    Renew,
    /// Write nothing on the leader row: this candidate leads.
    Follow(Uuid),
}

/// The whole rule. A live lease belongs to its holder; anything else is free.
pub(crate) fn decide(standing: Standing, me: Uuid, claim: Claim) -> Decision {
    match (standing, claim) {
        (Standing::Vacant { .. } | Standing::Lapsed { .. }, _) => Decision::Take,
        (Standing::Held { by, .. }, _) if by != me => Decision::Follow(by),
        (Standing::Held { .. }, Claim::Identity) => Decision::Renew,
        // It has given this tenure up already, so what follows is another tenure.
        (Standing::Held { term, .. }, Claim::Guard { last }) if last == Some(term) => {
            Decision::Take
        }
        (Standing::Held { .. }, Claim::Guard { .. }) => Decision::Follow(me),
    }
}

impl Standing {
    pub(crate) fn term(self) -> Term {
        match self {
            Standing::Vacant { term }
            | Standing::Lapsed { term, .. }
            | Standing::Held { term, .. } => term,
        }
    }

    /// Who holds an unexpired lease, if anybody does.
    pub(crate) fn leader(self) -> Option<Uuid> {
        match self {
            Standing::Held { by, .. } => Some(by),
            Standing::Vacant { .. } | Standing::Lapsed { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn term(term: i64) -> Term {
        Term::from_stored(term).unwrap()
    }

    #[test]
    fn a_live_lease_is_only_ever_its_holders() {
        let (me, other) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let remaining = Duration::from_micros(1);
        let held = |by| Standing::Held {
            by,
            term: term(5),
            remaining,
        };
        let free = [
            Standing::Vacant { term: term(5) },
            Standing::Lapsed {
                by: me,
                term: term(5),
            },
            Standing::Lapsed {
                by: other,
                term: term(5),
            },
        ];
        let guards = [None, Some(term(4)), Some(term(5))].map(|last| Claim::Guard { last });
        for claim in [Claim::Identity].into_iter().chain(guards) {
            for standing in free {
                assert_eq!(
                    decide(standing, me, claim),
                    Decision::Take,
                    "{standing:?} {claim:?}"
                );
            }
            assert_eq!(
                decide(held(other), me, claim),
                Decision::Follow(other),
                "{claim:?}"
            );
        }
        assert_eq!(decide(held(me), me, Claim::Identity), Decision::Renew);
        let expected = [Decision::Follow(me), Decision::Follow(me), Decision::Take];
        for (claim, expected) in guards.into_iter().zip(expected) {
            assert_eq!(decide(held(me), me, claim), expected, "{claim:?}");
        }
    }
}

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
        (Standing::Vacant { .. } | Standing::Lapsed { .. }, Claim::Identity) => Decision::Take,
        (Standing::Held { by, .. }, Claim::Identity) if by == me => Decision::Renew,
        (Standing::Held { by, .. }, Claim::Identity) => Decision::Follow(by),
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

use uuid::Uuid;

use super::Term;

/// What happens to a guard, in the order in which it happens.
///
/// `Lost` always follows an `Elected` of the same term, and there is never a second `Elected`
/// without a `Lost` between.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// This guard has been elected. It is told a moment before
    /// [`is_leader`](super::LeaderGuard::is_leader) says so; who acts on it waits with
    /// [`wait_until_leader`](super::LeaderGuard::wait_until_leader).
    Elected {
        /// The term of the tenure that begins.
        term: Term,
    },
    /// The tenure is over.
    Lost {
        /// The term of the tenure that ended.
        term: Term,
        /// Why it ended.
        cause: Lost,
    },
    /// Another candidate leads now.
    LeaderChanged {
        /// Who leads.
        leader: Uuid,
        /// The term it leads under.
        term: Term,
    },
    /// The database did not answer, or with an error. Told once until it answers again.
    Unreachable {
        /// What was reported.
        error: String,
    },
}

/// Why a guard leads no more; [`Ending`](super::Ending) is what the history says of a tenure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ran out: no beat could renew it in time, though the database answered.
    Expired,
    /// Another tenure has begun.
    Superseded {
        /// Who leads now.
        by: Uuid,
        /// The term it leads under.
        term: Term,
    },
    /// It was given up: by this guard, or through
    /// [`unregister_candidate`](super::unregister_candidate) with its id.
    Resigned,
    /// The database did not answer until the lease could no longer be trusted.
    Unreachable,
    /// This process, or the machine, stood still for so long that the lease could no longer be
    /// trusted.
    Suspended,
    /// The row of the namespace is gone.
    RowGone,
}

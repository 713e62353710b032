use std::fmt;

/// The number of a tenure: the fencing token of a namespace.
///
/// It grows by at least one with every acquisition, also when the same candidate comes back after
/// its lease lapsed or after it resigned, and never with a renewal. A store that remembers the
/// highest term it has seen can refuse the writes of every leader that came before.
///
/// A takeover by the Python package leaves the term as it was; the next acquisition through this
/// crate raises it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Term(i64);

impl Term {
    pub(crate) const ZERO: Term = Term(0);

    /// The term a stored integer stands for; `None` for one that was never issued.
    pub(crate) fn from_stored(stored: i64) -> Option<Term> {
        (stored >= 0).then_some(Term(stored))
    }

    /// The term of the next acquisition; `None` when the integers have run out.
    pub(crate) fn next(self) -> Option<Term> {
        self.0.checked_add(1).map(Term)
    }

    /// The term as the integer stored in the database, zero before the first acquisition.
    pub fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

//! What a call expects to find, from what the last one of the same handle has found.
//!
//! A leader's renewal, a follower's look and the statement that does either differ in cost. Which
//! of them is sent first is all that depends on this: what was expected wrongly costs one exchange
//! more, and no answer rests on it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use uuid::Uuid;

use super::calls::Elected;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Nothing,
    /// To lead, on a database whose renewal was one step the last time.
    ToLead,
    ToFollow,
}

/// More candidacies than that are forgotten, all at once.
const MOST: usize = 10_000;

/// What the last `elect` of each candidacy makes the next expect.
#[derive(Default)]
pub(crate) struct LastAnswers {
    hasher: RandomState,
    next: Mutex<HashMap<u64, Expected>>,
}

impl LastAnswers {
    pub(crate) fn expected(&self, me: Uuid, ns: &str) -> Expected {
        let known = self.next.lock().get(&self.candidacy(me, ns)).copied();
        known.unwrap_or(Expected::Nothing)
    }

    pub(crate) fn keep(&self, me: Uuid, ns: &str, elected: &Elected) {
        let expected = match elected {
            Elected { at_once: true, .. } => Expected::ToLead,
            Elected { leader, .. } if *leader == me => Expected::Nothing,
            Elected { .. } => Expected::ToFollow,
        };
        let mut next = self.next.lock();
        if next.len() >= MOST {
            next.clear();
        }
        next.insert(self.candidacy(me, ns), expected);
    }

    fn candidacy(&self, me: Uuid, ns: &str) -> u64 {
        self.hasher.hash_one((me, ns))
    }
}

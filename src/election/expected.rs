//! What a call expects to find, from what the last one of the same handle has found.
//!
//! A leader's renewal, a follower's look and the statement that does either differ in cost. Which
//! of them is sent first is all that depends on this: what was expected wrongly costs one exchange
//! more, and no answer rests on it.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

use parking_lot::Mutex;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    Nothing,
    ToLead,
    ToFollow,
}

/// More candidacies than that are forgotten, all at once.
const MOST: usize = 10_000;

/// Who led after the last `elect` of each candidacy.
#[derive(Default)]
pub(crate) struct LastAnswers {
    hasher: RandomState,
    led: Mutex<HashMap<u64, bool>>,
}

impl LastAnswers {
    pub(crate) fn expected(&self, me: Uuid, ns: &str) -> Expected {
        match self.led.lock().get(&self.candidacy(me, ns)) {
            None => Expected::Nothing,
            Some(true) => Expected::ToLead,
            Some(false) => Expected::ToFollow,
        }
    }

    pub(crate) fn keep(&self, me: Uuid, ns: &str, leads: bool) {
        let mut led = self.led.lock();
        if led.len() >= MOST {
            led.clear();
        }
        led.insert(self.candidacy(me, ns), leads);
    }

    fn candidacy(&self, me: Uuid, ns: &str) -> u64 {
        self.hasher.hash_one((me, ns))
    }
}

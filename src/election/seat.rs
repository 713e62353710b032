//! What a guard knows locally: until when it may be trusted, and under which term.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use uuid::Uuid;

use super::Term;
use crate::clock::BootClock;
use crate::fork::ProcessMark;

/// Shared by a guard, its tenures and the heartbeat.
pub(crate) struct Seat {
    pub(crate) ns: Arc<str>,
    pub(crate) me: Uuid,
    clock: BootClock,
    process: Arc<ProcessMark>,
    /// Nanoseconds of `clock` before which leadership is certain; zero when it is not.
    trusted_until: AtomicU64,
    /// The term of the current tenure, or of the last one.
    term: AtomicI64,
    /// No work may begin any more: the guard is resigning.
    closing: AtomicBool,
    book: Mutex<Book>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Book {
    /// Calls of `lead` that have not returned.
    working: usize,
    /// The campaign is over, for good; and whether the database has confirmed it.
    over: Option<bool>,
}

impl Seat {
    pub(crate) fn new(ns: Arc<str>, me: Uuid, clock: BootClock, process: Arc<ProcessMark>) -> Seat {
        Seat {
            ns,
            me,
            clock,
            process,
            trusted_until: AtomicU64::new(0),
            term: AtomicI64::new(0),
            closing: AtomicBool::new(false),
            book: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Whether this process is a forked child, which has no thread that keeps the seat.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.process.is_child()
    }

    /// The whole local truth: one load, one clock.
    ///
    /// The deadline is read before the clock. A process that is stopped between the two then sees
    /// a late clock and an old deadline, and says no.
    pub(crate) fn is_leader(&self) -> bool {
        let trusted_until = self.trusted_until.load(Ordering::Acquire);
        nanos(self.clock.now()) < trusted_until && !self.process.is_child()
    }

    /// Whether the tenure under `term` is the current one.
    pub(crate) fn holds(&self, term: Term) -> bool {
        self.is_leader() && self.term.load(Ordering::Acquire) == term.get()
    }

    pub(crate) fn remaining(&self, term: Term) -> Duration {
        if !self.holds(term) {
            return Duration::ZERO;
        }
        let trusted_until = Duration::from_nanos(self.trusted_until.load(Ordering::Acquire));
        trusted_until.saturating_sub(self.clock.now())
    }

    pub(crate) fn current_term(&self) -> Option<Term> {
        let term = Term::from_stored(self.term.load(Ordering::Acquire))?;
        self.holds(term).then_some(term)
    }

    /// The term of the current tenure, or of the last one; zero before the first.
    pub(crate) fn last_term(&self) -> Term {
        Term::from_stored(self.term.load(Ordering::Acquire)).unwrap_or(Term::ZERO)
    }

    /// A tenure begins. The term first: who sees the deadline sees the term it belongs to.
    pub(crate) fn begin(&self, term: Term, trusted_until: Duration) {
        let _book = self.book.lock();
        if self.closing.load(Ordering::Acquire) {
            return;
        }
        self.term.store(term.get(), Ordering::Release);
        self.trusted_until
            .store(nanos(trusted_until), Ordering::Release);
        self.changed.notify_all();
    }

    /// The lease was renewed. Under the lock, so that a seat that closes stays closed.
    pub(crate) fn extend(&self, trusted_until: Duration) {
        let _book = self.book.lock();
        if !self.closing.load(Ordering::Acquire) {
            self.trusted_until
                .store(nanos(trusted_until), Ordering::Release);
        }
    }

    /// Leadership is over, or no longer certain.
    pub(crate) fn end(&self) {
        self.trusted_until.store(0, Ordering::Release);
    }

    /// Leadership is given up: no work begins, and what runs sees the end.
    pub(crate) fn close(&self) {
        let _book = self.book.lock();
        self.closing.store(true, Ordering::Release);
        self.end();
    }

    /// Counts a piece of guarded work, if this seat leads now.
    pub(crate) fn start_work(self: &Arc<Seat>) -> Option<Work> {
        if self.is_orphaned() {
            return None;
        }
        let mut book = self.book.lock();
        let term = self.current_term()?;
        book.working += 1;
        Some(Work {
            tenure: Tenure {
                seat: self.clone(),
                term,
            },
        })
    }

    /// Waits until no guarded work runs; false if some still does after `timeout`.
    pub(crate) fn wait_for_work(&self, timeout: Duration) -> bool {
        let mut book = self.book.lock();
        self.changed
            .wait_while_for(&mut book, |book| book.working > 0, timeout);
        book.working == 0
    }

    /// The campaign is over; `confirmed` if the database holds nothing of it any more.
    pub(crate) fn finish(&self, confirmed: bool) {
        self.end();
        self.book.lock().over = Some(confirmed);
        self.changed.notify_all();
    }

    /// Waits until the campaign is over; false if it is not after `timeout`, or unconfirmed.
    pub(crate) fn wait_until_over(&self, timeout: Duration) -> bool {
        let mut book = self.book.lock();
        self.changed
            .wait_while_for(&mut book, |book| book.over.is_none(), timeout);
        book.over == Some(true)
    }

    /// Waits until this seat leads; `None` if it does not before `timeout`, or never will.
    pub(crate) fn wait_until_leader(self: &Arc<Seat>, timeout: Duration) -> Option<Tenure> {
        if self.is_orphaned() {
            return None;
        }
        let mut book = self.book.lock();
        self.changed.wait_while_for(
            &mut book,
            |book| book.over.is_none() && self.current_term().is_none(),
            timeout,
        );
        drop(book);
        self.tenure()
    }

    pub(crate) fn tenure(self: &Arc<Seat>) -> Option<Tenure> {
        let term = self.current_term()?;
        Some(Tenure {
            seat: self.clone(),
            term,
        })
    }
}

/// A piece of guarded work that runs; the seat waits for it before it releases its lease.
pub(crate) struct Work {
    pub(crate) tenure: Tenure,
}

impl Drop for Work {
    fn drop(&mut self) {
        self.tenure.seat.book.lock().working -= 1;
        self.tenure.seat.changed.notify_all();
    }
}

/// One unbroken time of leadership, under one term.
///
/// Every answer is local and fails closed: when in doubt, the tenure is over. It never comes back:
/// a later leadership of the same guard is another tenure.
#[derive(Clone)]
pub struct Tenure {
    seat: Arc<Seat>,
    term: Term,
}

impl Tenure {
    /// The term: the fencing token of what this tenure writes.
    pub fn term(&self) -> Term {
        self.term
    }

    /// How long this tenure can be trusted if no further beat succeeds; zero when it is over.
    pub fn remaining(&self) -> Duration {
        self.seat.remaining(self.term)
    }

    /// Whether this tenure is certain to be current. No query, no lock.
    pub fn is_current(&self) -> bool {
        self.seat.holds(self.term)
    }
}

impl fmt::Debug for Tenure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("ns", &self.seat.ns)
            .field("candidate_id", &self.seat.me)
            .field("term", &self.term)
            .field("is_current", &self.is_current())
            .finish()
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

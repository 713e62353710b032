//! Supervised runs against a repository in memory, with clocks that only move when told to.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

use chrono::{DateTime, TimeDelta, Utc};
use parking_lot::Mutex;

use super::*;
use crate::clock::BootClock;
use crate::operation::{
    OperationLeaseObservation, OperationLeaseRequest, TransitionFault, decide, observe,
};

/// The law over a map, with switches for what a disk can do.
#[derive(Default)]
struct Memory {
    leases: Mutex<HashMap<OperationConflictScopeReference, OperationOwnerLease>>,
    /// Renewals fail before they are recorded.
    broken: AtomicBool,
    /// Renewals are recorded, and reported as failed.
    forgetful: AtomicBool,
    /// Renewals panic.
    explosive: AtomicBool,
    renewals: AtomicUsize,
    /// Told of every finished renewal attempt.
    attempts: Mutex<Option<mpsc::Sender<()>>>,
    /// Renewals wait for a message here before they do anything.
    gate: Mutex<Option<mpsc::Receiver<()>>>,
}

fn disk_error() -> OperationLeaseError {
    OperationLeaseError::Io {
        action: "sync",
        path: "memory".into(),
        source: io::Error::other("broken"),
    }
}

impl Memory {
    fn play(
        &self,
        scope_ref: OperationConflictScopeReference,
        request: OperationLeaseRequest<'_>,
        now: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        let mut leases = self.leases.lock();
        let result = decide(request, leases.get(&scope_ref), now)?;
        match result.to_record() {
            Some((_, Some(lease))) => drop(leases.insert(scope_ref, lease.clone())),
            Some((_, None)) => drop(leases.remove(&scope_ref)),
            None => {}
        }
        Ok(result)
    }

    fn recorded(&self) -> Option<OperationOwnerLease> {
        self.leases.lock().get(&scope()).cloned()
    }
}

impl OperationLeaseRepository for &Memory {
    fn inspect(
        &self,
        scope_ref: &OperationConflictScopeReference,
        _: &OperationId,
        now: DateTime<Utc>,
    ) -> Result<OperationLeaseObservation, OperationLeaseError> {
        Ok(observe(self.leases.lock().get(scope_ref), now)?)
    }

    fn acquire(
        &self,
        candidate: &OperationOwnerLease,
        now: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.play(
            candidate.scope_ref(),
            OperationLeaseRequest::Acquire { candidate },
            now,
        )
    }

    fn compare_and_swap(
        &self,
        predecessor: &OperationOwnerLease,
        successor: &OperationOwnerLease,
        now: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        let renewal = predecessor.token() == successor.token();
        if renewal {
            if let Some(gate) = &*self.gate.lock() {
                let _ = gate.recv();
            }
            assert!(!self.explosive.load(Ordering::SeqCst), "boom");
        }
        let answer = if renewal && self.broken.load(Ordering::SeqCst) {
            Err(disk_error())
        } else {
            let request = OperationLeaseRequest::CompareAndSwap {
                predecessor,
                successor,
            };
            let answer = self.play(predecessor.scope_ref(), request, now);
            if renewal && self.forgetful.swap(false, Ordering::SeqCst) {
                Err(disk_error())
            } else {
                answer
            }
        };
        if renewal {
            self.renewals
                .fetch_add(usize::from(answer.is_ok()), Ordering::SeqCst);
            if let Some(attempts) = &*self.attempts.lock() {
                let _ = attempts.send(());
            }
        }
        answer
    }

    fn release(
        &self,
        predecessor: &OperationOwnerLease,
        now: DateTime<Utc>,
    ) -> Result<OperationLeaseResult, OperationLeaseError> {
        self.play(
            predecessor.scope_ref(),
            OperationLeaseRequest::Release { predecessor },
            now,
        )
    }
}

fn scope() -> OperationConflictScopeReference {
    [1; 32].into()
}

const LEASE: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(20);

/// A supervisor over `memory` with clocks that stand still, and the wall clock to set.
fn supervisor(
    memory: &Memory,
) -> (
    OperationSupervisor<&Memory>,
    BootClock,
    Arc<Mutex<DateTime<Utc>>>,
) {
    let boot = BootClock::manual();
    let wall = Arc::new(Mutex::new(
        DateTime::from_timestamp(1_700_000_000, 0).unwrap(),
    ));
    let clocks = Clocks {
        boot: boot.clone(),
        wall_at_boot: Some(wall.clone()),
    };
    let supervisor = OperationSupervisor {
        clocks,
        ..OperationSupervisor::new(memory)
    };
    (supervisor, boot, wall)
}

fn run<T>(
    supervisor: &OperationSupervisor<&Memory>,
    work: impl FnOnce(&HeldOperation) -> T,
) -> OperationRun<T> {
    supervisor
        .run(&scope(), &OperationId::random(), work)
        .unwrap()
}

/// A channel that hears of every renewal attempt.
fn attempts(memory: &Memory) -> mpsc::Receiver<()> {
    let (sender, receiver) = mpsc::channel();
    *memory.attempts.lock() = Some(sender);
    receiver
}

#[test]
fn a_run_holds_the_lease_and_releases_it() {
    let memory = Memory::default();
    let (supervisor, _, _) = supervisor(&memory);
    let run = run(&supervisor, |held| {
        assert!(held.is_held() && held.ensure_held().is_ok());
        assert_eq!(memory.recorded(), Some(held.lease()));
        assert_eq!(held.remaining(), LEASE - LEASE / 10);
        5
    });
    assert!(matches!(run, OperationRun::Completed { value: 5 }));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn a_held_scope_is_busy_and_the_work_does_not_run() {
    let memory = Memory::default();
    let (supervisor, _, _) = supervisor(&memory);
    let outer = run(&supervisor, |held| {
        match run(&supervisor, |_| panic!("must not run")) {
            OperationRun::<()>::Busy { current } => assert_eq!(current, held.lease()),
            other => panic!("{other:?}"),
        }
    });
    assert!(matches!(outer, OperationRun::Completed { .. }));
}

#[test]
fn the_lease_is_renewed_every_third_of_it() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    let heard = attempts(&memory);
    let run = run(&supervisor, |held| {
        for beat in 1..=5 {
            boot.advance(LEASE / 3);
            heard.recv_timeout(PATIENCE).unwrap();
            assert_eq!(memory.renewals.load(Ordering::SeqCst), beat);
        }
        assert!(held.is_held());
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn an_expired_lease_is_taken_over() {
    let memory = Memory::default();
    let (supervisor, boot, wall) = supervisor(&memory);
    let now = *wall.lock();
    let dead = OperationOwnerLease::new(
        OperationId::random(),
        scope(),
        OwnerId::random(),
        OperationLeaseToken::random(),
        now,
        now + TimeDelta::seconds(5),
    )
    .unwrap();
    memory.leases.lock().insert(scope(), dead.clone());
    assert!(matches!(run(&supervisor, |_| ()), OperationRun::Busy { current } if current == dead));
    boot.advance(Duration::from_secs(5));
    assert!(matches!(
        run(&supervisor, |_| ()),
        OperationRun::Completed { .. }
    ));

    memory.leases.lock().insert(scope(), dead.clone());
    let same_owner = supervisor.clone().owner_id(dead.owner_id());
    let refused = same_owner
        .run(&scope(), &OperationId::random(), |_| ())
        .unwrap_err();
    assert!(matches!(
        refused,
        OperationLeaseError::Transition(TransitionFault::TakeoverKeepsOwner)
    ));
}

#[test]
fn the_very_first_question_after_a_suspend_is_answered_with_no() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    // Renewals stay stuck, so that only the clock can tell.
    let (open, gate) = mpsc::channel();
    *memory.gate.lock() = Some(gate);
    let run = run(&supervisor, |held| {
        boot.advance(LEASE - LEASE / 10 - Duration::from_nanos(1));
        assert!(held.is_held());
        boot.advance(Duration::from_nanos(1));
        assert!(!held.is_held());
        assert_eq!(held.remaining(), Duration::ZERO);
        drop(open);
    });
    assert!(matches!(
        run,
        OperationRun::Lost {
            cause: OperationLoss::Lapsed,
            ..
        }
    ));
    assert_eq!(
        memory.recorded(),
        None,
        "what is still ours is released in the end"
    );
}

#[test]
fn a_late_renewal_revives_nothing_and_is_released_all_the_same() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    let heard = attempts(&memory);
    let (open, gate) = mpsc::channel();
    *memory.gate.lock() = Some(gate);
    let run = run(&supervisor, |held| {
        boot.advance(LEASE / 3);
        while memory.gate.try_lock().is_some() {
            thread::yield_now();
        }
        // The renewal is on its way and hangs until the old lease has lapsed; the new one would be good for a while.
        boot.advance(LEASE * 2 / 3);
        open.send(()).unwrap();
        heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(memory.renewals.load(Ordering::SeqCst), 1);
        while held.lease() != memory.recorded().unwrap() {
            thread::yield_now();
        }
        assert!(!held.is_held());
        drop(open);
    });
    assert!(matches!(
        run,
        OperationRun::Lost {
            cause: OperationLoss::Lapsed,
            ..
        }
    ));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn a_wall_clock_set_forward_ends_the_trust_at_once() {
    let memory = Memory::default();
    let (supervisor, _, wall) = supervisor(&memory);
    let run = run(&supervisor, |held| {
        *wall.lock() += TimeDelta::hours(1);
        assert!(!held.is_held());
    });
    assert!(matches!(
        run,
        OperationRun::Lost {
            cause: OperationLoss::Lapsed,
            ..
        }
    ));
}

#[test]
fn a_wall_clock_set_back_a_little_does_not_end_a_lease_that_can_be_renewed() {
    let memory = Memory::default();
    let (supervisor, boot, wall) = supervisor(&memory);
    let heard = attempts(&memory);
    let run = run(&supervisor, |held| {
        *wall.lock() -= TimeDelta::seconds(10);
        for _ in 0..6 {
            boot.advance(LEASE / 3);
            heard.recv_timeout(PATIENCE).unwrap();
        }
        assert!(held.is_held());
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
}

#[test]
fn being_superseded_is_told_at_the_next_renewal() {
    let memory = Memory::default();
    let (supervisor, boot, wall) = supervisor(&memory);
    let run = run(&supervisor, |held| {
        let now = *wall.lock();
        let other = OperationOwnerLease::new(
            OperationId::random(),
            scope(),
            OwnerId::random(),
            OperationLeaseToken::random(),
            now,
            now + TimeDelta::hours(1),
        )
        .unwrap();
        memory.leases.lock().insert(scope(), other.clone());
        boot.advance(LEASE / 3);
        let loss = held.wait_lost(PATIENCE);
        assert_eq!(
            loss,
            Some(OperationLoss::Superseded {
                current: Some(Box::new(other.clone()))
            })
        );
        other
    });
    let OperationRun::Lost { value: other, .. } = run else {
        panic!("{run:?}")
    };
    assert_eq!(
        memory.recorded(),
        Some(other),
        "another's lease is left alone"
    );
}

#[test]
fn renewals_that_fail_for_a_while_change_nothing() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    let heard = attempts(&memory);
    let run = run(&supervisor, |held| {
        memory.broken.store(true, Ordering::SeqCst);
        boot.advance(LEASE / 3);
        heard.recv_timeout(PATIENCE).unwrap();
        assert!(held.is_held());
        memory.broken.store(false, Ordering::SeqCst);
        boot.advance(LEASE / 20);
        heard.recv_timeout(PATIENCE).unwrap();
        assert_eq!(memory.renewals.load(Ordering::SeqCst), 1);
        assert!(held.is_held());
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
}

#[test]
fn a_renewal_that_happened_but_was_reported_as_failed_is_recognised() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    let heard = attempts(&memory);
    let run = run(&supervisor, |held| {
        memory.forgetful.store(true, Ordering::SeqCst);
        boot.advance(LEASE / 3);
        heard.recv_timeout(PATIENCE).unwrap();
        assert_ne!(memory.recorded(), Some(held.lease()));
        // The next attempt learns of it, and the one after renews.
        for _ in 0..2 {
            boot.advance(LEASE / 20);
            heard.recv_timeout(PATIENCE).unwrap();
        }
        boot.advance(LEASE / 3);
        heard.recv_timeout(PATIENCE).unwrap();
        assert!(held.is_held());
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn a_renewal_of_unknown_outcome_just_before_the_end_is_released() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    let heard = attempts(&memory);
    let run = run(&supervisor, |held| {
        memory.forgetful.store(true, Ordering::SeqCst);
        boot.advance(LEASE / 3);
        heard.recv_timeout(PATIENCE).unwrap();
        assert!(held.is_held());
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn a_panicking_renewal_is_a_loss_and_no_abort() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    memory.explosive.store(true, Ordering::SeqCst);
    let run = run(&supervisor, |held| {
        boot.advance(LEASE / 3);
        assert_eq!(
            held.wait_lost(PATIENCE),
            Some(OperationLoss::RenewalPanicked)
        );
    });
    assert!(matches!(
        run,
        OperationRun::Lost {
            cause: OperationLoss::RenewalPanicked,
            ..
        }
    ));
}

#[test]
fn panicking_work_releases_the_lease() {
    let memory = Memory::default();
    let (supervisor, _, _) = supervisor(&memory);
    let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _ = run(&supervisor, |_| panic!("the work fails"));
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"the work fails"));
    assert_eq!(memory.recorded(), None);
}

#[test]
fn every_waiting_thread_is_told_of_the_loss() {
    let memory = Memory::default();
    let (supervisor, boot, _) = supervisor(&memory);
    memory.broken.store(true, Ordering::SeqCst);
    let run = run(&supervisor, |held| {
        thread::scope(|threads| {
            let waits: Vec<_> = (0..4)
                .map(|_| threads.spawn(|| held.wait_lost(Duration::MAX)))
                .collect();
            boot.advance(LEASE);
            for wait in waits {
                assert_eq!(wait.join().unwrap(), Some(OperationLoss::Lapsed));
            }
        });
    });
    assert!(matches!(run, OperationRun::Lost { .. }));
}

#[test]
fn waiting_for_a_loss_ends_in_time_without_one() {
    let memory = Memory::default();
    let supervisor = OperationSupervisor::new(&memory);
    let run = run(&supervisor, |held| {
        assert_eq!(held.wait_lost(Duration::ZERO), None);
        assert_eq!(held.wait_lost(Duration::from_millis(5)), None);
    });
    assert!(matches!(run, OperationRun::Completed { .. }));
}

#[test]
fn one_range_of_leases_is_accepted() {
    let memory = Memory::default();
    let make = |lease| OperationSupervisor::new(&memory).lease(lease);
    for accepted in [
        Duration::from_millis(100),
        Duration::from_secs(365 * 86_400),
    ] {
        assert!(matches!(
            run(&make(accepted).unwrap(), |held| held.is_held()),
            OperationRun::Completed { value: true }
        ));
    }
    for refused in [
        Duration::ZERO,
        Duration::from_nanos(1),
        Duration::from_nanos(99_999_999),
        Duration::from_secs(u64::MAX),
        Duration::MAX,
    ] {
        assert!(matches!(
            make(refused),
            Err(OperationLeaseError::Setting {
                setting: "lease",
                ..
            })
        ));
    }
}

#[test]
fn a_lease_that_ran_out_while_it_was_taken_is_given_up() {
    /// Takes longer than a lease to acquire one.
    struct Slow<'a>(&'a Memory, BootClock);
    impl OperationLeaseRepository for Slow<'_> {
        fn inspect(
            &self,
            scope_ref: &OperationConflictScopeReference,
            operation_id: &OperationId,
            now: DateTime<Utc>,
        ) -> Result<OperationLeaseObservation, OperationLeaseError> {
            self.0.inspect(scope_ref, operation_id, now)
        }
        fn acquire(
            &self,
            candidate: &OperationOwnerLease,
            now: DateTime<Utc>,
        ) -> Result<OperationLeaseResult, OperationLeaseError> {
            self.1.advance(LEASE);
            self.0.acquire(candidate, now)
        }
        fn compare_and_swap(
            &self,
            predecessor: &OperationOwnerLease,
            successor: &OperationOwnerLease,
            now: DateTime<Utc>,
        ) -> Result<OperationLeaseResult, OperationLeaseError> {
            self.0.compare_and_swap(predecessor, successor, now)
        }
        fn release(
            &self,
            predecessor: &OperationOwnerLease,
            now: DateTime<Utc>,
        ) -> Result<OperationLeaseResult, OperationLeaseError> {
            self.0.release(predecessor, now)
        }
    }
    let memory = Memory::default();
    let (fast, boot, _) = supervisor(&memory);
    let slow = OperationSupervisor {
        clocks: fast.clocks,
        ..OperationSupervisor::new(Slow(&memory, boot))
    };
    let error = slow
        .run(&scope(), &OperationId::random(), |_| ())
        .unwrap_err();
    assert!(matches!(error, OperationLeaseError::Lapsed { lease: LEASE }) && error.is_retryable());
    assert_eq!(memory.recorded(), None);
}

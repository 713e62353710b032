//! What only a test inside the crate can do to a guard: move its clock, break its thread.

use std::sync::atomic::{AtomicBool, Ordering};

use super::campaign::Step;

/// Panics in the heartbeat thread, in the namespace that a test has set aside for it.
static PANICS: AtomicBool = AtomicBool::new(false);

pub(super) fn panic_if_told(step: &Step) {
    if PANICS.load(Ordering::Relaxed) && step.is_about("panics") {
        // Past the panic hook: to print a backtrace takes longer than the patience with a beat.
        std::panic::resume_unwind(Box::new("as the test told it"));
    }
}

impl Step {
    fn is_about(&self, ns: &str) -> bool {
        match self {
            Step::Renew(asks) | Step::Look(asks, _) => asks.iter().any(|(_, ask)| &*ask.ns == ns),
            Step::Claim { ask, .. } | Step::Leave { ask, .. } => &*ask.ns == ns,
            Step::Sweep(_) => false,
        }
    }
}

#[cfg(feature = "sqlite")]
mod on_sqlite {
    use std::sync::Arc;
    use std::sync::mpsc::Receiver;
    use std::time::{Duration, Instant};

    use diesel::sqlite::SqliteConnection;
    use uuid::Uuid;

    use super::*;
    use crate::clock::BootClock;
    use crate::election::heartbeat::Heartbeat;
    use crate::election::pool::Opening;
    use crate::election::test_support::Directory;
    use crate::election::url::DatabaseUrl;
    use crate::election::{Election, Event, LeaderGuard, Lost};

    const LEASE: Duration = Duration::from_secs(60);
    const PATIENCE: Duration = Duration::from_secs(30);

    fn election(lease: Duration) -> (Directory, Election, Opening) {
        let dir = Directory::new();
        let url = format!("sqlite:{}", dir.path().join("x.db").display());
        let election = Election::builder(&url).expire(lease).build().unwrap();
        let opening = Opening {
            url: DatabaseUrl::parse(&url).unwrap(),
            statement_timeout: lease / 4,
            prepared_statements: true,
        };
        (dir, election, opening)
    }

    fn on_clock(opening: &Opening) -> (BootClock, Arc<Heartbeat>) {
        let clock = BootClock::manual();
        clock.advance(Duration::from_secs(1000));
        let heartbeat = Heartbeat::on_clock::<SqliteConnection>(opening.clone(), clock.clone());
        (clock, heartbeat)
    }

    fn next_loss(events: &Receiver<Event>) -> Lost {
        loop {
            if let Event::Lost { cause, .. } = events.recv_timeout(PATIENCE).expect("an event") {
                return cause;
            }
        }
    }

    /// F7: the machine slept. The suspend-counting clock has jumped, nothing else has happened.
    #[test]
    fn after_a_suspend_the_first_answer_is_no() {
        let (_dir, election, opening) = election(LEASE);
        let (clock, heartbeat) = on_clock(&opening);
        let builder = LeaderGuard::builder(&election, Uuid::new_v4(), "x");
        let guard = builder.spawn_on(heartbeat).unwrap();
        let tenure = guard.wait_until_leader(PATIENCE).unwrap();
        let events = guard.events();
        clock.advance(2 * LEASE);
        assert!(!guard.is_leader() && !tenure.is_current());
        assert_eq!(next_loss(&events), Lost::Suspended);
        let again = guard.wait_until_leader(PATIENCE).unwrap();
        assert!(again.term() > tenure.term() && !tenure.is_current());
        let rest: Vec<Event> = events.try_iter().collect();
        assert_eq!(rest, [Event::Elected { term: again.term() }]);
    }

    /// S5: the one formula, to the nanosecond.
    #[test]
    fn it_leads_until_the_start_of_the_beat_plus_expire_minus_margin() {
        let (_dir, election, opening) = election(LEASE);
        let (clock, heartbeat) = on_clock(&opening);
        let margin = Duration::from_secs(7);
        let builder = LeaderGuard::builder(&election, Uuid::new_v4(), "x").margin(margin);
        let guard = builder.spawn_on(heartbeat).unwrap();
        let tenure = guard.wait_until_leader(PATIENCE).unwrap();
        // The clock stood still all the time: the beat began now.
        assert_eq!(tenure.remaining(), LEASE - margin);
        clock.advance(LEASE - margin - Duration::from_nanos(1));
        // The heartbeat may renew at any moment, so the last nanosecond is seen or a new lease is.
        assert!(guard.is_leader());
    }

    #[test]
    fn a_lease_that_is_not_renewed_ends_at_the_formula() {
        let (_dir, election, opening) = election(LEASE);
        let (clock, heartbeat) = on_clock(&opening);
        let margin = Duration::from_secs(7);
        let builder = LeaderGuard::builder(&election, Uuid::new_v4(), "x").margin(margin);
        let guard = builder.spawn_on(heartbeat).unwrap();
        let tenure = guard.wait_until_leader(PATIENCE).unwrap();
        clock.advance(LEASE - margin);
        // By now the guard may lead again, under another term.
        assert!(!tenure.is_current());
    }

    /// F22: the heartbeat thread panics. The guard is false by its deadline, the cause is told,
    /// drop does not panic, and the next beat is a beat again.
    #[test]
    fn a_panic_in_the_heartbeat_is_a_failed_beat() {
        let lease = Duration::from_secs(3);
        let (_dir, election, _) = election(lease);
        let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "panics").unwrap();
        guard.wait_until_leader(PATIENCE).unwrap();
        let events = guard.events();
        PANICS.store(true, Ordering::Relaxed);
        let began = Instant::now();
        let told = loop {
            if let Event::Unreachable { error } = events.recv_timeout(PATIENCE).unwrap() {
                break error;
            }
        };
        assert!(told.contains("panicked"), "{told}");
        assert_eq!(next_loss(&events), Lost::Unreachable);
        assert!(!guard.is_leader() && began.elapsed() <= lease);
        PANICS.store(false, Ordering::Relaxed);
        guard.wait_until_leader(PATIENCE).unwrap();
        drop(guard);
    }
}

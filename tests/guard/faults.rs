//! Something is wrong in the database.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::election::{Election, Event, LeaderGuard, Lost};
use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::{must_lead, next_loss};

on_every_database![
    a_deleted_row_is_a_loss_and_a_higher_term_follows,
    a_locked_row_stops_its_own_guard_and_no_other,
    calls_that_hold_every_connection_of_the_pool_do_not_stop_a_beat,
];

const LEASE: Duration = Duration::from_secs(2);

/// F17
fn a_deleted_row_is_a_loss_and_a_higher_term_follows<C: Database>() {
    let fresh = Fresh::new::<C>();
    let guard = LeaderGuard::spawn(&fresh.election_with(LEASE), Uuid::new_v4(), "x").unwrap();
    let tenure = must_lead(&guard);
    let events = guard.events();
    fresh
        .connect::<C>()
        .run("DELETE FROM gemstone_election_leader");
    assert_eq!(next_loss(&events), Lost::RowGone);
    assert!(must_lead(&guard).term() > tenure.term());
    assert!(!tenure.is_current());
}

/// F16. SQLite has one lock for everything.
fn a_locked_row_stops_its_own_guard_and_no_other<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election_with(LEASE);
    let guards = ["x", "y"].map(|ns| LeaderGuard::spawn(&election, Uuid::new_v4(), ns).unwrap());
    guards.iter().for_each(|guard| drop(must_lead(guard)));
    let [x, y] = guards.each_ref().map(LeaderGuard::events);
    let mut holder = fresh.connect::<C>();
    holder.hold_row("x");
    let held = Instant::now();
    let lost = next_loss(&x);
    assert!(held.elapsed() <= LEASE, "{:?}", held.elapsed());
    assert!(held.elapsed() >= LEASE / 2, "{:?}", held.elapsed());
    assert!(!guards[0].is_leader());
    if !C::HOLD.starts_with("BEGIN IMMEDIATE") {
        assert_eq!(lost, Lost::Expired);
        assert!(guards[1].is_leader());
        thread::sleep(2 * LEASE);
        let news: Vec<Event> = y.try_iter().collect();
        assert!(matches!(news[..], [Event::Elected { .. }]), "{news:?}");
    }
    holder.run("ROLLBACK");
    must_lead(&guards[0]);
}

/// F19, with the pool of the election itself
fn calls_that_hold_every_connection_of_the_pool_do_not_stop_a_beat<C: Database>() {
    let fresh = Fresh::new::<C>();
    if C::HOLD.starts_with("BEGIN IMMEDIATE") {
        // A locked file stops everybody; see above.
        return;
    }
    let builder = Election::builder(&fresh.url).expire(LEASE).pool_size(1);
    let election = builder.statement_timeout(3 * LEASE).build().unwrap();
    election.elect(Uuid::new_v4(), "locked").unwrap();
    let mut holder = fresh.connect::<C>();
    holder.lapse("locked");
    holder.hold_row("locked");
    let guard = LeaderGuard::spawn(&election, Uuid::new_v4(), "x").unwrap();
    must_lead(&guard);
    let events = guard.events();
    thread::scope(|scope| {
        scope.spawn(|| election.elect(Uuid::new_v4(), "locked").unwrap_err());
        let until = Instant::now() + 3 * LEASE;
        while Instant::now() < until {
            assert!(guard.is_leader());
            thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(events.try_iter().count(), 1, "elected, and nothing else");
}

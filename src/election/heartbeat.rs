//! The one thread that renews every guard of an `Election`, and the one that keeps the time.
//!
//! The heartbeat thread asks the database one thing at a time, over a connection of its own. It may
//! hang for as long as a network likes. The timekeeper, one thread for the whole process, never
//! asks anything: it ends tenures on time, and when an answer is overdue it abandons the heartbeat
//! thread with its connection and starts another. Whatever the abandoned one hears is thrown away.

use std::collections::{HashMap, HashSet};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::calls::{self, Call};
use super::campaign::{Campaigns, Id, Step};
use super::classify::Class;
use super::pool::{Open, Opening};
use super::retry::Budget;
use super::store::Ask;
use super::timekeeper::timekeeper;
use super::{ElectionError, Expire, sweep};
use crate::clock::BootClock;
use crate::fork::ProcessMark;

/// How long the heartbeat thread waits for new guards before it ends.
const IDLE: Duration = Duration::from_secs(5);

/// How many abandoned threads may wait for the dead connections they hold.
const MOST_ABANDONED: usize = 4;

/// How often a notification is looked for while somebody follows.
const LISTENING: Duration = Duration::from_millis(10);

pub(crate) struct Heartbeat {
    opening: Opening,
    pub(crate) clock: BootClock,
    pub(crate) process: Arc<ProcessMark>,
    start: fn(Arc<Heartbeat>, u64) -> io::Result<()>,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    campaigns: Campaigns,
    /// Which heartbeat thread is the one that counts; zero while there is none.
    current: u64,
    last_started: u64,
    /// Threads whose answer does not count any more, and which have not ended yet.
    abandoned: HashSet<u64>,
    /// What the current thread has asked, and when the answer is overdue.
    asked: Option<(Vec<Id>, Duration)>,
}

impl Heartbeat {
    pub(crate) fn new<C: Open>(opening: Opening) -> Arc<Heartbeat> {
        Heartbeat::on_clock::<C>(opening, BootClock::system())
    }

    pub(crate) fn on_clock<C: Open>(opening: Opening, clock: BootClock) -> Arc<Heartbeat> {
        let heartbeat = Arc::new(Heartbeat {
            opening,
            clock,
            process: Arc::new(ProcessMark::new()),
            start: start_thread::<C>,
            state: Mutex::default(),
            wake: Condvar::new(),
        });
        timekeeper().watch(&heartbeat);
        // If it cannot start now, the first guard tries again, and says so.
        let _ = timekeeper().start();
        heartbeat
    }

    /// Runs `work` on the campaigns and lets both threads see what it changed.
    ///
    /// # Errors
    ///
    /// When no heartbeat thread runs and none can be started; `work` has not run then.
    pub(crate) fn with<T>(
        self: &Arc<Self>,
        work: impl FnOnce(&mut Campaigns, Duration) -> T,
    ) -> io::Result<T> {
        if self.process.is_child() {
            // The locks may be held by threads that were not copied.
            return Err(io::Error::other(
                "this process was forked from the one that opened the election, whose threads it has not; \
                 start a new process instead",
            ));
        }
        timekeeper().start()?;
        let mut state = self.state.lock();
        if state.current == 0 {
            self.start_another(&mut state)?;
        }
        let was_empty = state.campaigns.is_empty();
        let result = work(&mut state.campaigns, self.clock.now());
        drop(state);
        self.wake.notify_all();
        if was_empty {
            timekeeper().call();
        }
        Ok(result)
    }

    fn start_another(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let generation = state.last_started + 1;
        (self.start)(self.clone(), generation)?;
        state.last_started = generation;
        state.current = generation;
        Ok(())
    }

    /// Waits for something to ask; `None` when this thread shall end.
    fn next_step<C: Open>(&self, generation: u64, conn: &mut Option<C>) -> Option<Step> {
        let mut idle_since = self.clock.now();
        let mut state = self.state.lock();
        loop {
            if state.current != generation {
                return None;
            }
            let now = self.clock.now();
            if let Some(step) = state.campaigns.next_step(now) {
                let ids = step.ids();
                let overdue = now + state.campaigns.patience_with(&ids);
                state.asked = Some((ids, overdue));
                return Some(step);
            }
            if !state.campaigns.is_empty() {
                idle_since = now;
            } else if now.saturating_sub(idle_since) > IDLE {
                state.current = 0;
                return None;
            }
            if self.hear(&mut state, conn) {
                continue;
            }
            let listens = state.campaigns.has_followers() && conn.is_some() && C::NOTIFIES;
            let longest = if listens {
                LISTENING
            } else {
                Duration::from_secs(1)
            };
            let sleep = state.campaigns.next_due().map_or(longest, |due| {
                due.saturating_sub(now)
                    .clamp(Duration::from_micros(100), longest)
            });
            self.wake.wait_for(&mut state, sleep);
        }
    }

    /// Takes in what was told of releases; true if there was any.
    fn hear<C: Open>(&self, state: &mut State, conn: &mut Option<C>) -> bool {
        let heard = conn.as_mut().map_or(Ok(Vec::new()), Open::heard);
        match heard {
            Ok(namespaces) if namespaces.is_empty() => false,
            Ok(namespaces) => {
                let vacant: HashSet<String> = namespaces.into_iter().collect();
                state.campaigns.wake(&vacant, self.clock.now());
                true
            }
            // Polling goes on over a fresh connection.
            Err(_) => {
                *conn = None;
                false
            }
        }
    }

    /// Takes an answer, unless this thread has been abandoned meanwhile.
    fn take(&self, generation: u64, step: &Step, answer: Answer, began: Duration) -> bool {
        let mut state = self.state.lock();
        if state.current != generation {
            return false;
        }
        state.asked = None;
        let now = self.clock.now();
        let campaigns = &mut state.campaigns;
        match (step, answer) {
            (Step::Claim { id, .. } | Step::Leave { id, .. }, Answer::Busy) => {
                campaigns.busy(*id, now)
            }
            (_, Answer::Failed(error)) => campaigns.failed(&step.ids(), &error, now),
            (Step::Renew(asks), Answer::Renewed(renewed, others)) => {
                campaigns.renewed(asks, &renewed, &others, began, now)
            }
            (Step::Look(asks, registered), Answer::Seen(sights)) => {
                campaigns.looked(asks, &sights, !registered.is_empty(), began, now)
            }
            (Step::Claim { id, .. }, Answer::Claimed(term)) => {
                campaigns.claimed(*id, term, began, now)
            }
            (Step::Leave { id, .. }, Answer::Left) => campaigns.left(*id),
            (Step::Sweep(_), Answer::Swept) => {}
            // Each step has one kind of answer, see `ask`.
            _ => campaigns.failed(&step.ids(), "an answer to another question", now),
        }
        true
    }

    /// What the timekeeper does: ends tenures, and abandons a thread whose answer is overdue.
    /// Gives the time until it wants to be called again.
    pub(super) fn keep_time(self: &Arc<Self>) -> Option<Duration> {
        let mut state = self.state.lock();
        let now = self.clock.now();
        state.campaigns.expire(now);
        let mut abandoned = None;
        if let Some((ids, overdue)) = &state.asked
            && *overdue <= now
        {
            let ids = ids.clone();
            abandoned = Some(self.abandon(&mut state, &ids, now));
        }
        let wait = (!state.campaigns.is_empty()).then(|| {
            let overdue = state.asked.as_ref().map(|(_, overdue)| *overdue);
            let next = [state.campaigns.next_deadline(), overdue]
                .into_iter()
                .flatten()
                .min();
            // A question asked meanwhile is overdue after this long at the earliest.
            let patience = state.campaigns.patience() / 2;
            next.map_or(patience, |at| at.saturating_sub(now).min(patience))
        });
        drop(state);
        // A subscriber of the log may ask a guard.
        match abandoned {
            Some(Ok(true)) => {
                tracing::warn!("a beat did not come back in time; another connection takes over")
            }
            Some(Err(error)) => tracing::error!(%error, "no thread could take over a hanging beat"),
            Some(Ok(false)) | None => {}
        }
        wait
    }

    /// Lets another thread take over; false if too many hang already.
    fn abandon(self: &Arc<Self>, state: &mut State, ids: &[Id], now: Duration) -> io::Result<bool> {
        let left_behind = state.current;
        // Without another thread, this one is waited for a little longer.
        state.asked = Some((ids.to_vec(), now + state.campaigns.patience()));
        if state.abandoned.len() >= MOST_ABANDONED {
            return Ok(false);
        }
        self.start_another(state)?;
        state.abandoned.insert(left_behind);
        state.asked = None;
        state.campaigns.failed(ids, "no answer in time", now);
        Ok(true)
    }

    fn ended(&self, generation: u64) {
        self.state.lock().abandoned.remove(&generation);
    }
}

impl Step {
    fn ids(&self) -> Vec<Id> {
        match self {
            Step::Renew(asks) | Step::Look(asks, _) => asks.iter().map(|(id, _)| *id).collect(),
            Step::Claim { id, .. } | Step::Leave { id, .. } => vec![*id],
            Step::Sweep(_) => Vec::new(),
        }
    }
}

enum Answer {
    Renewed(HashSet<String>, super::campaign::Sights),
    Seen(super::campaign::Sights),
    Claimed(Option<super::Term>),
    Left,
    Swept,
    /// Another session has the row locked.
    Busy,
    Failed(String),
}

fn start_thread<C: Open>(heartbeat: Arc<Heartbeat>, generation: u64) -> io::Result<()> {
    let run = move || {
        let mut conn: Option<C> = None;
        while let Some(step) = heartbeat.next_step(generation, &mut conn) {
            let began = heartbeat.clock.now();
            // A panic here is a failed beat like any other: the guards are false by their deadline.
            let asked = AssertUnwindSafe(|| ask_again(&heartbeat.opening, &mut conn, &step));
            let answer = match catch_unwind(asked) {
                Ok(Ok(answer)) => answer,
                Ok(Err(ElectionError::LockTimeout { .. })) => Answer::Busy,
                Ok(Err(error)) => {
                    if error.class() != Some(Class::Contention) {
                        conn = None;
                    }
                    Answer::Failed(error.to_string())
                }
                Err(_) => {
                    conn = None;
                    Answer::Failed("the heartbeat thread panicked".to_owned())
                }
            };
            if !heartbeat.take(generation, &step, answer, began) {
                break;
            }
        }
        drop(conn);
        heartbeat.ended(generation);
    };
    thread::Builder::new()
        .name("leasehold-beat".to_owned())
        .spawn(run)
        .map(drop)
}

/// Asks until no other session is in the way, for as long as one statement may take.
fn ask_again<C: Open>(
    opening: &Opening,
    conn: &mut Option<C>,
    step: &Step,
) -> Result<Answer, ElectionError> {
    let mut attempts = Budget::exactly(opening.statement_timeout).start(C::LONGEST_PAUSE);
    loop {
        match ask(opening, conn, step) {
            Err(error) if error.class() == Some(Class::Contention) => {
                attempts.pause_or_time_out(error)?
            }
            outcome => return outcome,
        }
    }
}

fn ask<C: Open>(
    opening: &Opening,
    conn: &mut Option<C>,
    step: &Step,
) -> Result<Answer, ElectionError> {
    #[cfg(test)]
    super::guard_tests::panic_if_told(step);
    let conn = match conn {
        Some(conn) => conn,
        None => conn.insert(C::open_for_beats(opening)?),
    };
    match step {
        Step::Renew(asks) => {
            let asks: Vec<Ask> = asks.iter().map(|(_, ask)| ask.clone()).collect();
            let renewed: HashSet<String> = conn.renew_all(&asks)?.into_iter().collect();
            let others: Vec<Ask> = asks
                .into_iter()
                .filter(|ask| !renewed.contains(&ask.tenure()))
                .collect();
            let others = if others.is_empty() {
                HashMap::new()
            } else {
                conn.look_all(&others)?
            };
            Ok(Answer::Renewed(renewed, others))
        }
        Step::Look(asks, register) => {
            let asks: Vec<Ask> = asks.iter().map(|(_, ask)| ask.clone()).collect();
            if !register.is_empty() {
                conn.beat_all(&register.iter().collect::<Vec<_>>())?;
            }
            Ok(Answer::Seen(conn.look_all(&asks)?))
        }
        Step::Claim { ask, last, .. } => {
            let call = call_for("elect", ask)?;
            calls::claim(conn, &call, *last).map(Answer::Claimed)
        }
        Step::Leave { ask, term, .. } => {
            let call = call_for("resign", ask)?;
            calls::leave(conn, &call, *term).map(|()| Answer::Left)
        }
        Step::Sweep(ns) => sweep::sweep(conn, ns, sweep::MANY).map(|()| Answer::Swept),
    }
}

fn call_for<'a>(name: &'static str, ask: &'a Ask) -> Result<Call<'a>, ElectionError> {
    let expire = Expire::from_micros(ask.expire.unsigned_abs());
    Call::by(name, ask.me, Some(&ask.ns), expire)
}

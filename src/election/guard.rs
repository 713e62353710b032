use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::campaign::Id;
use super::fence;
use super::heartbeat::Heartbeat;
use super::namespace::Namespace;
use super::seat::Seat;
use super::settings::Settings;
use super::{Election, ElectionConnection, ElectionError, Event, Tenure};

/// How long `drop` waits for the database.
const DROP_WITHIN: Duration = Duration::from_millis(1500);

/// How long it waits for one that has not answered before either.
const DROP_WHEN_DEAD: Duration = Duration::from_millis(1);

/// How many events a subscriber may leave unread before it is dropped.
const UNREAD_EVENTS: usize = 1024;

/// Campaigns for leadership of one namespace and keeps it, from the background.
///
/// A guard campaigns from the moment it is made until it is dropped: when it loses its lease it
/// stands again, unless it was built with [`once`](LeaderGuardBuilder::once). What it says about
/// itself is local and conservative, see [`is_leader`](LeaderGuard::is_leader).
///
/// Dropping it resigns. `drop` waits at most 2 seconds for the database and cannot report what
/// went wrong; [`resign`](LeaderGuard::resign) can. A lease that could not be released runs out by
/// itself.
///
/// Two guards with one candidate id are two: they never lead together.
pub struct LeaderGuard {
    seat: Arc<Seat>,
    id: Id,
    settings: Settings,
    heartbeat: Arc<Heartbeat>,
}

impl LeaderGuard {
    /// Stands for `ns` as `candidate_id`, with the lease duration of `election` and the times that
    /// follow from it; see [`builder`](LeaderGuard::builder) for each.
    ///
    /// Returns at once: the first attempt is made in the background.
    ///
    /// # Errors
    ///
    /// [`InvalidNamespace`](ElectionError::InvalidNamespace), and
    /// [`Thread`](ElectionError::Thread) when no thread can be started. Nothing was written then.
    pub fn spawn(
        election: &Election,
        candidate_id: Uuid,
        ns: &str,
    ) -> Result<LeaderGuard, ElectionError> {
        LeaderGuard::builder(election, candidate_id, ns).spawn()
    }

    /// The settings of a guard that is not made yet.
    pub fn builder<'a>(
        election: &'a Election,
        candidate_id: Uuid,
        ns: &'a str,
    ) -> LeaderGuardBuilder<'a> {
        LeaderGuardBuilder {
            election,
            candidate_id,
            ns,
            settings: Settings::for_lease(election.expire().duration()),
            jitter: None,
        }
    }

    /// Whether this guard certainly leads at this moment.
    ///
    /// True only before `start of the last successful beat + expire - margin`, by a clock that
    /// counts the time the machine sleeps. It reads one atomic and one clock: no query and no lock.
    /// It is false when in doubt: while a query hangs, after the heartbeat thread died, in a process
    /// that was stopped and continued, in a forked child.
    pub fn is_leader(&self) -> bool {
        self.seat.is_leader()
    }

    /// The current tenure, if this guard leads.
    pub fn tenure(&self) -> Option<Tenure> {
        self.seat.tenure()
    }

    /// Waits until this guard leads; `None` if it does not within `timeout`.
    ///
    /// `None` at once if it never will again: it was built with
    /// [`once`](LeaderGuardBuilder::once) and has led, has stepped down, or is in a forked child. A
    /// loop around it should end then.
    pub fn wait_until_leader(&self, timeout: Duration) -> Option<Tenure> {
        self.seat.wait_until_leader(timeout)
    }

    /// What happens to this guard from now on. A tenure that is current is told first.
    ///
    /// Each call gives another subscription. One that leaves more than 1024 events unread ends.
    pub fn events(&self) -> Receiver<Event> {
        let (sender, receiver) = sync_channel(UNREAD_EVENTS);
        // Without a heartbeat there is nothing to tell: the receiver finds its sender gone.
        let _ = self
            .heartbeat
            .with(|campaigns, _| campaigns.subscribe(self.id, sender));
        receiver
    }

    /// Runs `work` if this guard leads, and gives what it returns.
    ///
    /// The work sees the loss of leadership at once, by [`Tenure::is_current`]; it is not
    /// interrupted. A voluntary release waits until it has returned.
    ///
    /// # Errors
    ///
    /// [`NotLeader`](ElectionError::NotLeader) when this guard does not lead; `work` has not run.
    pub fn lead<T>(&self, work: impl FnOnce(&Tenure) -> T) -> Result<T, ElectionError> {
        let work_counts = self.seat.start_work().ok_or_else(|| self.not_leader())?;
        Ok(work(&work_counts.tenure))
    }

    /// Runs `work` in a transaction that commits only if this guard's tenure is still current.
    ///
    /// The connection is the caller's own, to the same database. The transaction first holds the
    /// leader row in share mode and checks candidate, term and expiry by the database's clock; a
    /// takeover waits for its end. A guard that has been superseded without knowing it, or whose
    /// lease is over, is refused, and nothing that `work` would have written is there. Inside a
    /// transaction that is open already it is a savepoint of that.
    ///
    /// Keep it short against the lease: on MySQL and SQLite the guard's own beats wait for it.
    ///
    /// # Errors
    ///
    /// [`NotLeader`](ElectionError::NotLeader) before `work` runs, the error of `work` itself, and
    /// what diesel reports. On an error the transaction was rolled back; an error of the commit
    /// leaves its outcome unknown.
    pub fn transaction<C, T, E>(
        &self,
        conn: &mut C,
        work: impl FnOnce(&mut C) -> Result<T, E>,
    ) -> Result<T, E>
    where
        C: ElectionConnection,
        E: From<ElectionError> + From<diesel::result::Error>,
    {
        let term = self.seat.current_term().ok_or_else(|| self.not_leader())?;
        fence::transaction(conn, &self.seat, self.settings.expire, term, work)
    }

    /// Gives leadership up, and the candidacy: stops beating, waits until the guarded work has
    /// ended, releases the lease, tells the followers.
    ///
    /// Work that does not end is waited for until the lease has run out. Guards that are shared
    /// between threads resign by [`step_down`](LeaderGuard::step_down).
    ///
    /// # Errors
    ///
    /// [`NotReleased`](ElectionError::NotReleased) when the database did not confirm it in time;
    /// the lease then runs out by itself.
    pub fn resign(self) -> Result<(), ElectionError> {
        self.step_down()
    }

    /// As [`resign`](LeaderGuard::resign), for a guard that is shared: from then on it neither
    /// leads nor campaigns.
    ///
    /// Not from within [`lead`](LeaderGuard::lead): it would wait for itself until the lease ends.
    ///
    /// # Errors
    ///
    /// As [`resign`](LeaderGuard::resign).
    pub fn step_down(&self) -> Result<(), ElectionError> {
        let patience = self.settings.expire;
        self.leave(patience, patience)
    }

    fn leave(&self, for_work: Duration, for_database: Duration) -> Result<(), ElectionError> {
        let began = Instant::now();
        let not_released = || ElectionError::NotReleased {
            ns: self.seat.ns.to_string(),
            candidate_id: self.seat.me,
            waited: began.elapsed(),
        };
        // A forked child has nothing to give back, and its copies of the locks may be held.
        if self.seat.is_orphaned() {
            return Err(not_released());
        }
        self.seat.close();
        self.heartbeat
            .with(|campaigns, now| campaigns.stand_down(self.id, now))
            .map_err(|_| not_released())?;
        // Work that outlasts the lease has no lease that could be kept for it.
        self.seat.wait_for_work(for_work);
        let answers = self
            .heartbeat
            .with(|campaigns, now| campaigns.release(self.id, now))
            .map_err(|_| not_released())?;
        // Whoever drops many guards of a database that is dead does not wait for each.
        let patience = match for_database {
            DROP_WITHIN if !answers => DROP_WHEN_DEAD,
            patience => patience,
        };
        match self.seat.wait_until_over(patience) {
            true => Ok(()),
            false => Err(not_released()),
        }
    }

    fn not_leader(&self) -> ElectionError {
        ElectionError::NotLeader {
            ns: self.seat.ns.to_string(),
            candidate_id: self.seat.me,
            term: self.seat.last_term(),
        }
    }
}

impl Drop for LeaderGuard {
    fn drop(&mut self) {
        let _ = self.leave(Duration::ZERO, DROP_WITHIN);
    }
}

impl fmt::Debug for LeaderGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderGuard")
            .field("ns", &self.seat.ns)
            .field("candidate_id", &self.seat.me)
            .field("tenure", &self.tenure())
            .finish_non_exhaustive()
    }
}

/// The settings of a [`LeaderGuard`]. Nothing is started before
/// [`spawn`](LeaderGuardBuilder::spawn).
#[derive(Debug)]
#[must_use = "nothing is started before `spawn`"]
pub struct LeaderGuardBuilder<'a> {
    election: &'a Election,
    candidate_id: Uuid,
    ns: &'a str,
    settings: Settings,
    jitter: Option<Duration>,
}

impl LeaderGuardBuilder<'_> {
    /// The time from one beat to the next: 1 ms to a third of the lease duration.
    ///
    /// The shorter, the sooner a lost lease is noticed, and the more the database is asked.
    ///
    /// Defaults to a third of the lease duration.
    pub fn beat(mut self, beat: Duration) -> Self {
        self.settings.beat = beat;
        self
    }

    /// How long one attempt to reach the database may take before it is abandoned.
    ///
    /// Defaults to a quarter of the lease duration, at most 10 seconds.
    pub fn attempt_timeout(mut self, attempt: Duration) -> Self {
        self.settings.attempt = attempt;
        self
    }

    /// By how much this guard stops trusting its lease before the lease ends: up to a third of the
    /// lease duration.
    ///
    /// It covers what the work still does after it asked [`is_leader`](LeaderGuard::is_leader),
    /// and clocks that run at different speeds.
    ///
    /// Defaults to a tenth of the lease duration, at most 5 seconds.
    pub fn margin(mut self, margin: Duration) -> Self {
        self.settings.margin = margin;
        self
    }

    /// By how much a beat may be early, at random, so that many guards do not beat as one: up to
    /// half of the beat.
    ///
    /// Defaults to a tenth of the beat.
    pub fn jitter(mut self, jitter: Duration) -> Self {
        self.jitter = Some(jitter);
        self
    }

    /// Does not campaign again after a loss.
    pub fn once(mut self) -> Self {
        self.settings.once = true;
        self
    }

    /// Checks the settings and begins to campaign.
    ///
    /// # Errors
    ///
    /// [`InvalidSetting`](ElectionError::InvalidSetting) for each relation that does not hold: the
    /// beat at most a third of the lease; beat, attempt timeout and margin together less than the
    /// lease. And as [`LeaderGuard::spawn`].
    pub fn spawn(self) -> Result<LeaderGuard, ElectionError> {
        let heartbeat = self.election.beats().clone();
        self.spawn_on(heartbeat)
    }

    pub(crate) fn spawn_on(
        mut self,
        heartbeat: Arc<Heartbeat>,
    ) -> Result<LeaderGuard, ElectionError> {
        let ns = Namespace::new(Some(self.ns))?;
        self.settings.jitter = self.jitter.unwrap_or(self.settings.beat / 10);
        self.settings.check()?;
        let seat = Arc::new(Seat::new(
            ns.as_str().into(),
            self.candidate_id,
            heartbeat.clock.clone(),
            heartbeat.process.clone(),
        ));
        let id = heartbeat
            .with(|campaigns, now| campaigns.add(seat.clone(), self.settings, now))
            .map_err(|source| ElectionError::Thread { source })?;
        Ok(LeaderGuard {
            seat,
            id,
            settings: self.settings,
            heartbeat,
        })
    }
}

//! The campaigns of all guards of one `Election`, as a state machine: what is due, and what an
//! answer changes. No thread, no database; time is handed in.

mod answers;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use uuid::Uuid;

use super::rule::Standing;
use super::seat::Seat;
use super::settings::Settings;
use super::store::Ask;
use super::{ElectionError, Event, Lost, Term};

pub(crate) type Id = u64;

/// The most namespaces that one statement is about.
const BATCH: usize = 2000;

/// A beat that is due this soon goes out with one that is due now.
const SOON: Duration = Duration::from_millis(5);

/// How often registrations that ended long ago are looked for.
const SWEEP: Duration = Duration::from_secs(60);

/// One thing to ask the database.
pub(crate) enum Step {
    /// Renew these tenures, in one go.
    Renew(Vec<(Id, Ask)>),
    /// Look who leads, in one go; the second list is to be registered as candidates too.
    Look(Vec<(Id, Ask)>, Vec<Ask>),
    /// Take this lease, if it is free.
    Claim {
        id: Id,
        ask: Ask,
        last: Option<Term>,
    },
    /// Give up this lease, if there is one, and this candidacy.
    Leave {
        id: Id,
        ask: Ask,
        term: Option<Term>,
    },
    /// Remove registrations that ended long ago, from this namespace onwards.
    Sweep(Arc<str>),
}

/// What a look at one namespace shows; `None` where it has no row.
pub(crate) type Sights = HashMap<String, Result<Standing, ElectionError>>;

#[derive(Default)]
pub(crate) struct Campaigns {
    all: HashMap<Id, Campaign>,
    next_id: Id,
    /// When which campaign wants something; each is in here once, or in `asked`.
    due: BTreeSet<(Urgency, Duration, Id)>,
    /// Which campaigns wait for an answer, and since when.
    asked: HashMap<Id, Duration>,
    /// Until when which leader may be trusted.
    deadlines: BTreeSet<(Duration, Id)>,
    /// The attempt timeouts of all campaigns, and how many have each.
    attempts: BTreeMap<Duration, usize>,
    /// A beat was sent last: whatever else is due has a turn before the next.
    others_turn: bool,
    /// Which of the others is asked first.
    first_other: usize,
    /// When registrations that ended long ago are looked for again.
    sweep_at: Duration,
}

/// What goes first among what is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Urgency {
    Renew,
    Leave,
    Look,
    Claim,
}

struct Campaign {
    seat: Arc<Seat>,
    settings: Settings,
    phase: Phase,
    due: (Urgency, Duration),
    /// The term of the last tenure, and of the current one.
    last: Option<Term>,
    /// The leader that was last seen, other than this guard.
    seen: Option<(Uuid, Term)>,
    /// When the candidate must be registered anew.
    register_at: Duration,
    /// The last answer was an error, or did not come.
    failing: bool,
    /// It has asked for the lease and has not heard whether it got it.
    in_doubt: bool,
    events: Vec<SyncSender<Event>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Following,
    Leading {
        trusted_until: Duration,
    },
    /// Not before it is `ready`, which is when the guarded work has ended, and not after `give_up`,
    /// when the lease has run out by itself.
    Leaving {
        tenure: Option<Term>,
        ready: bool,
        give_up: Duration,
    },
}

impl Campaigns {
    pub(crate) fn add(&mut self, seat: Arc<Seat>, settings: Settings, now: Duration) -> Id {
        let id = self.next_id;
        self.next_id += 1;
        let due = (Urgency::Look, now);
        *self.attempts.entry(settings.attempt).or_default() += 1;
        self.all.insert(
            id,
            Campaign {
                seat,
                settings,
                phase: Phase::Following,
                due,
                last: None,
                seen: None,
                register_at: now,
                failing: false,
                in_doubt: false,
                events: Vec::new(),
            },
        );
        self.due.insert((due.0, due.1, id));
        id
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn has_followers(&self) -> bool {
        self.due
            .range((Urgency::Look, Duration::ZERO, 0)..)
            .next()
            .is_some()
    }

    /// Adds a subscriber, who first hears of the tenure that is current, if one is.
    pub(crate) fn subscribe(&mut self, id: Id, events: SyncSender<Event>) {
        if let Some(campaign) = self.all.get_mut(&id) {
            if let (Phase::Leading { .. }, Some(term)) = (campaign.phase, campaign.last) {
                let _ = events.try_send(Event::Elected { term });
            }
            campaign.events.push(events);
        }
    }

    /// The shortest time after which an answer is overdue, of all campaigns.
    pub(crate) fn patience(&self) -> Duration {
        let shortest = self.attempts.first_key_value();
        shortest.map_or(Duration::from_secs(1), |(attempt, _)| *attempt)
    }

    /// The same, of those that are asked about.
    pub(crate) fn patience_with(&self, asked: &[Id]) -> Duration {
        let attempts = asked.iter().filter_map(|id| self.all.get(id));
        let shortest = attempts.map(|campaign| campaign.settings.attempt).min();
        shortest.unwrap_or_else(|| self.patience())
    }

    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// When the next step is due.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        [
            Urgency::Renew,
            Urgency::Leave,
            Urgency::Look,
            Urgency::Claim,
        ]
        .into_iter()
        .filter_map(|urgency| {
            let mut of_its_kind = self.due.range((urgency, Duration::ZERO, 0)..);
            of_its_kind.next().filter(|first| first.0 == urgency)
        })
        .map(|(_, at, _)| *at)
        .min()
    }

    /// What to ask next, of what is due; its answer is then awaited.
    ///
    /// Beats go first, all that are due in one question; but between two of them each other kind
    /// has its turn, however short the beats are.
    pub(crate) fn next_step(&mut self, now: Duration) -> Option<Step> {
        self.expire(now);
        if std::mem::take(&mut self.others_turn)
            && let Some(step) = self.next_other(now)
        {
            return Some(step);
        }
        if self.is_due(Urgency::Renew, now) {
            self.others_turn = true;
            let renew = self.take_due(Urgency::Renew, now + SOON, now, BATCH);
            let asks = renew.into_iter().map(|id| (id, self.all[&id].ask()));
            return Some(Step::Renew(asks.collect()));
        }
        self.next_other(now).or_else(|| self.sweep(now))
    }

    /// When nothing else is due: on behalf of one campaign, drawn by chance.
    fn sweep(&mut self, now: Duration) -> Option<Step> {
        if now < self.sweep_at || self.all.is_empty() {
            return None;
        }
        self.sweep_at = now + SWEEP;
        let drawn = Uuid::new_v4().as_u128() % self.all.len() as u128;
        let campaign = self.all.values().nth(drawn as usize)?;
        Some(Step::Sweep(campaign.seat.ns.clone()))
    }

    fn next_other(&mut self, now: Duration) -> Option<Step> {
        const OTHERS: [Urgency; 3] = [Urgency::Leave, Urgency::Look, Urgency::Claim];
        for turn in 0..OTHERS.len() {
            let kind = (self.first_other + turn) % OTHERS.len();
            if self.is_due(OTHERS[kind], now) {
                self.first_other = kind + 1;
                return self.other(OTHERS[kind], now);
            }
        }
        None
    }

    fn other(&mut self, urgency: Urgency, now: Duration) -> Option<Step> {
        if urgency == Urgency::Look {
            let ids = self.take_due(urgency, now, now, BATCH);
            return Some(self.look(&ids, now));
        }
        let id = *self.take_due(urgency, now, now, 1).first()?;
        let campaign = self.all.get_mut(&id)?;
        let ask = campaign.ask();
        match campaign.phase {
            Phase::Leaving { tenure, .. } => Some(Step::Leave {
                id,
                ask,
                term: tenure,
            }),
            _ => {
                campaign.in_doubt = true;
                let last = campaign.last;
                Some(Step::Claim { id, ask, last })
            }
        }
    }

    fn is_due(&self, urgency: Urgency, now: Duration) -> bool {
        let mut of_its_kind = self
            .due
            .range((urgency, Duration::ZERO, 0)..=(urgency, now, Id::MAX));
        of_its_kind.next().is_some()
    }

    fn look(&mut self, ids: &[Id], now: Duration) -> Step {
        let mut register: HashMap<(Arc<str>, Uuid), Ask> = HashMap::new();
        let mut asks = Vec::with_capacity(ids.len());
        for id in ids {
            let campaign = &self.all[id];
            let ask = campaign.ask();
            if campaign.register_at <= now {
                // Two guards of one id are one candidate.
                register.insert((ask.ns.clone(), ask.me), ask.clone());
            }
            asks.push((*id, ask));
        }
        Step::Look(asks, register.into_values().collect())
    }

    fn take_due(
        &mut self,
        urgency: Urgency,
        until: Duration,
        now: Duration,
        most: usize,
    ) -> Vec<Id> {
        let range = (urgency, Duration::ZERO, 0)..=(urgency, until, Id::MAX);
        let due: Vec<_> = self.due.range(range).take(most).copied().collect();
        for entry in &due {
            self.due.remove(entry);
            self.asked.insert(entry.2, now);
        }
        due.into_iter().map(|(_, _, id)| id).collect()
    }

    /// The guard gives up: no further beat is sent, and subscribers hear of it.
    pub(crate) fn stand_down(&mut self, id: Id, now: Duration) {
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        let tenure = match campaign.phase {
            Phase::Leaving { .. } => return,
            Phase::Leading { .. } => campaign.last,
            Phase::Following => None,
        };
        campaign.seat.close();
        if let Some(term) = tenure {
            campaign.tell(Event::Lost {
                term,
                cause: Lost::Resigned,
            });
        }
        let give_up = now + campaign.settings.expire;
        self.set_phase(
            id,
            Phase::Leaving {
                tenure,
                ready: false,
                give_up,
            },
        );
        self.unschedule(id);
    }

    /// The guarded work has ended, or the lease: now it is released. False if the database has not
    /// answered of late.
    pub(crate) fn release(&mut self, id: Id, now: Duration) -> bool {
        let Some(campaign) = self.all.get_mut(&id) else {
            return true;
        };
        let answers = !campaign.failing;
        let expire = campaign.settings.expire;
        if let Phase::Leaving { ready, give_up, .. } = &mut campaign.phase {
            *ready = true;
            *give_up = now + expire;
            self.schedule_next(id, now);
        }
        answers
    }

    fn remove(&mut self, id: Id, confirmed: bool) {
        self.unschedule(id);
        self.set_phase(id, Phase::Following);
        if let Some(campaign) = self.all.remove(&id) {
            campaign.seat.finish(confirmed);
            let attempt = campaign.settings.attempt;
            if let Some(campaigns) = self.attempts.get_mut(&attempt) {
                *campaigns -= 1;
                if *campaigns == 0 {
                    self.attempts.remove(&attempt);
                }
            }
        }
    }

    fn set_phase(&mut self, id: Id, phase: Phase) {
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        if let Phase::Leading { trusted_until } = campaign.phase {
            self.deadlines.remove(&(trusted_until, id));
        }
        if let Phase::Leading { trusted_until } = phase {
            self.deadlines.insert((trusted_until, id));
        }
        campaign.phase = phase;
    }

    fn schedule_beat(&mut self, id: Id, began: Duration) {
        let Some(campaign) = self.all.get(&id) else {
            return;
        };
        let at = began + campaign.settings.next_beat();
        self.schedule(id, Urgency::Renew, at);
    }

    /// Schedules what the phase asks for next: nothing, while guarded work has yet to end.
    fn schedule_next(&mut self, id: Id, at: Duration) {
        let urgency = match self.all.get(&id).map(|campaign| campaign.phase) {
            Some(Phase::Leading { .. }) => Urgency::Renew,
            Some(Phase::Following) => Urgency::Look,
            Some(Phase::Leaving { ready: true, .. }) => Urgency::Leave,
            Some(Phase::Leaving { ready: false, .. }) | None => return,
        };
        self.schedule(id, urgency, at);
    }

    fn schedule(&mut self, id: Id, urgency: Urgency, at: Duration) {
        self.unschedule(id);
        if let Some(campaign) = self.all.get_mut(&id) {
            campaign.due = (urgency, at);
            // While an answer is awaited, nothing else is asked; its arrival schedules.
            if !self.asked.contains_key(&id) {
                self.due.insert((urgency, at, id));
            }
        }
    }

    fn unschedule(&mut self, id: Id) {
        if let Some(campaign) = self.all.get(&id) {
            self.due.remove(&(campaign.due.0, campaign.due.1, id));
        }
    }
}

impl Campaign {
    fn ask(&self) -> Ask {
        Ask {
            ns: self.seat.ns.clone(),
            me: self.seat.me,
            term: self.last.map_or(0, Term::get),
            expire: self.settings.expire.as_micros() as i64,
        }
    }

    /// A subscriber that is gone, or so slow that its queue is full, is dropped.
    fn tell(&mut self, event: Event) {
        self.events.retain(|subscriber| {
            !matches!(
                subscriber.try_send(event.clone()),
                Err(TrySendError::Disconnected(_) | TrySendError::Full(_))
            )
        });
    }
}

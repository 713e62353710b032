//! The campaigns of all guards of one `Election`, as a state machine: what is due, and what an
//! answer changes. No thread, no database; time is handed in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::time::Duration;

use uuid::Uuid;

use super::retry::jittered;
use super::rule::Standing;
use super::seat::Seat;
use super::settings::Settings;
use super::store::Ask;
use super::{ElectionError, Event, Lost, Term};

pub(crate) type Id = u64;

/// The most namespaces that one statement is about.
const BATCH: usize = 2000;

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
    /// The shortest attempt of the campaigns there have been since there was none.
    patience: Option<Duration>,
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
        let shortest = self
            .patience
            .map_or(settings.attempt, |one| one.min(settings.attempt));
        self.patience = Some(shortest);
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
        self.patience.unwrap_or(Duration::from_secs(1))
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

    /// The most urgent thing that is due, and whose answer is then awaited.
    pub(crate) fn next_step(&mut self, now: Duration) -> Option<Step> {
        self.expire(now);
        let renew = self.take_due(Urgency::Renew, now, BATCH);
        if !renew.is_empty() {
            let asks = renew
                .into_iter()
                .map(|id| (id, self.all[&id].ask()))
                .collect();
            return Some(Step::Renew(asks));
        }
        if let Some(&id) = self.take_due(Urgency::Leave, now, 1).first() {
            let campaign = &self.all[&id];
            let Phase::Leaving { tenure, .. } = campaign.phase else {
                return None;
            };
            return Some(Step::Leave {
                id,
                ask: campaign.ask(),
                term: tenure,
            });
        }
        let look = self.take_due(Urgency::Look, now, BATCH);
        if !look.is_empty() {
            return Some(self.look(&look, now));
        }
        let id = *self.take_due(Urgency::Claim, now, 1).first()?;
        let campaign = &self.all[&id];
        Some(Step::Claim {
            id,
            ask: campaign.ask(),
            last: campaign.last,
        })
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

    fn take_due(&mut self, urgency: Urgency, now: Duration, most: usize) -> Vec<Id> {
        let range = (urgency, Duration::ZERO, 0)..=(urgency, now, Id::MAX);
        let due: Vec<_> = self.due.range(range).take(most).copied().collect();
        for entry in &due {
            self.due.remove(entry);
            self.asked.insert(entry.2, now);
        }
        due.into_iter().map(|(_, _, id)| id).collect()
    }

    /// Ends every tenure that can no longer be trusted. A timekeeper calls this in time; when
    /// it comes late, it was the process that stood still.
    pub(crate) fn expire(&mut self, now: Duration) {
        while let Some((at, id)) = self.deadlines.first().copied()
            && at <= now
        {
            let campaign = &self.all[&id];
            let late = campaign
                .settings
                .beat
                .clamp(Duration::from_millis(50), Duration::from_secs(2));
            let waits = self
                .asked
                .get(&id)
                .map_or(Duration::ZERO, |since| now.saturating_sub(*since));
            let cause = if now - at > late {
                Lost::Suspended
            } else if campaign.failing || waits > campaign.settings.attempt / 2 {
                Lost::Unreachable
            } else {
                Lost::Expired
            };
            self.lose(id, cause, now);
        }
    }

    /// The answer to `Step::Renew`: where the lease was extended, and for the others what a look
    /// at them shows. `began` is the time before the question was sent.
    pub(crate) fn renewed(
        &mut self,
        asked: &[(Id, Ask)],
        renewed: &HashSet<String>,
        others: &Sights,
        began: Duration,
        now: Duration,
    ) {
        self.expire(now);
        for (id, ask) in asked {
            self.asked.remove(id);
            let Some(campaign) = self.all.get_mut(id) else {
                continue;
            };
            let leads = matches!(campaign.phase, Phase::Leading { .. });
            if !leads || campaign.last.is_none_or(|term| term.get() != ask.term) {
                self.schedule_next(*id, now);
            } else if renewed.contains(&*ask.ns) {
                campaign.failing = false;
                campaign.register_at = began + campaign.settings.expire / 3;
                let trusted_until = campaign.settings.trusted_until(began);
                campaign.seat.extend(trusted_until);
                self.set_phase(*id, Phase::Leading { trusted_until });
                self.schedule_beat(*id, began);
            } else {
                self.not_renewed(*id, ask, others.get(&*ask.ns), now);
            }
        }
    }

    fn not_renewed(
        &mut self,
        id: Id,
        ask: &Ask,
        sight: Option<&Result<Standing, ElectionError>>,
        now: Duration,
    ) {
        let mine = |by: Uuid, term: Term| by == ask.me && term.get() == ask.term;
        match sight {
            None => self.lose(id, Lost::RowGone, now),
            Some(Err(error)) => self.failed(&[id], &error.to_string(), now),
            // The row is locked by somebody: the lease stands, and so does the next try.
            Some(Ok(Standing::Held { by, term, .. })) if mine(*by, *term) => self.retry(id, now),
            Some(Ok(Standing::Lapsed { by, term })) if mine(*by, *term) => {
                self.lose(id, Lost::Expired, now)
            }
            Some(Ok(Standing::Vacant { .. })) => self.lose(id, Lost::Resigned, now),
            Some(Ok(Standing::Held { by, term, .. } | Standing::Lapsed { by, term })) => {
                let cause = Lost::Superseded {
                    by: *by,
                    term: *term,
                };
                self.lose(id, cause, now)
            }
        }
    }

    /// The answer to `Step::Look`.
    pub(crate) fn looked(
        &mut self,
        asked: &[(Id, Ask)],
        sights: &Sights,
        registered: bool,
        began: Duration,
        now: Duration,
    ) {
        for (id, ask) in asked {
            self.asked.remove(id);
            let Some(campaign) = self.all.get_mut(id) else {
                continue;
            };
            if campaign.phase != Phase::Following {
                self.schedule_next(*id, now);
                continue;
            }
            if registered && campaign.register_at <= began {
                campaign.register_at = began + campaign.settings.expire / 3;
            }
            let sight = sights.get(&*ask.ns);
            match sight {
                Some(Err(error)) => self.failed(&[*id], &error.to_string(), now),
                Some(Ok(Standing::Held {
                    by,
                    term,
                    remaining,
                })) if *by != ask.me || campaign.last != Some(*term) => {
                    self.follow(*id, *by, *term, *remaining, began)
                }
                _ => {
                    campaign.failing = false;
                    self.schedule(*id, Urgency::Claim, now);
                }
            }
        }
    }

    /// Sleeps until the lease that is followed ends, but no longer than a beat.
    fn follow(&mut self, id: Id, leader: Uuid, term: Term, remaining: Duration, began: Duration) {
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        campaign.failing = false;
        if campaign.seen.replace((leader, term)) != Some((leader, term)) {
            campaign.tell(Event::LeaderChanged { leader, term });
        }
        let spread = (campaign.settings.beat / 4).min(Duration::from_millis(50));
        let sleep = campaign
            .settings
            .next_beat()
            .min(remaining + jittered(spread));
        self.schedule(id, Urgency::Look, began + sleep);
    }

    /// The answer to `Step::Claim`: the term, if the lease was free.
    pub(crate) fn claimed(&mut self, id: Id, term: Option<Term>, began: Duration, now: Duration) {
        self.asked.remove(&id);
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        campaign.failing = false;
        let Some(term) = term else {
            self.schedule_next(id, now);
            return;
        };
        campaign.last = Some(term);
        campaign.seen = None;
        campaign.register_at = began + campaign.settings.expire / 3;
        if let Phase::Leaving {
            tenure, give_up, ..
        } = &mut campaign.phase
        {
            // It resigned while the answer was on its way: what was taken must be given back.
            *tenure = Some(term);
            *give_up = (*give_up).max(began + campaign.settings.expire);
            self.schedule_next(id, now);
            return;
        }
        let trusted_until = campaign.settings.trusted_until(began);
        // Who sees that it leads finds the news told.
        campaign.tell(Event::Elected { term });
        campaign.seat.begin(term, trusted_until);
        self.set_phase(id, Phase::Leading { trusted_until });
        self.schedule_beat(id, began);
        self.expire(now);
    }

    /// The answer to `Step::Leave`.
    pub(crate) fn left(&mut self, id: Id) {
        self.asked.remove(&id);
        self.remove(id);
    }

    /// No answer, or an error: nothing is known, and the next try is not far.
    pub(crate) fn failed(&mut self, ids: &[Id], error: &str, now: Duration) {
        for id in ids {
            self.asked.remove(id);
            let Some(campaign) = self.all.get_mut(id) else {
                continue;
            };
            if !std::mem::replace(&mut campaign.failing, true) {
                campaign.tell(Event::Unreachable {
                    error: error.to_owned(),
                });
            }
            if let Phase::Leaving { give_up, .. } = campaign.phase
                && now >= give_up
            {
                self.remove(*id);
                continue;
            }
            self.retry(*id, now);
        }
        self.expire(now);
    }

    fn retry(&mut self, id: Id, now: Duration) {
        if let Some(campaign) = self.all.get(&id) {
            let pause = jittered(campaign.settings.pause_after_failure());
            self.schedule_next(id, now + pause);
        }
    }

    /// Wakes the followers of a namespace: it has become vacant.
    pub(crate) fn wake(&mut self, ns: &str, now: Duration) {
        let followers: Vec<Id> = self
            .due
            .iter()
            .filter(|(urgency, _, id)| *urgency == Urgency::Look && *self.all[id].seat.ns == *ns)
            .map(|(_, _, id)| *id)
            .collect();
        for id in followers {
            self.schedule(id, Urgency::Look, now);
        }
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

    /// The guarded work has ended, or the lease: now it is released.
    pub(crate) fn release(&mut self, id: Id, now: Duration) {
        if let Some(Campaign {
            phase: Phase::Leaving { ready, .. },
            ..
        }) = self.all.get_mut(&id)
        {
            *ready = true;
            self.schedule_next(id, now);
        }
    }

    fn lose(&mut self, id: Id, cause: Lost, now: Duration) {
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        campaign.seat.end();
        if let Some(term) = campaign.last {
            campaign.tell(Event::Lost { term, cause });
        }
        if campaign.settings.once {
            campaign.seat.close();
            let give_up = now + campaign.settings.expire;
            self.set_phase(
                id,
                Phase::Leaving {
                    tenure: None,
                    ready: true,
                    give_up,
                },
            );
            self.schedule_next(id, now);
            return;
        }
        self.set_phase(id, Phase::Following);
        self.schedule(id, Urgency::Look, now);
    }

    fn remove(&mut self, id: Id) {
        self.unschedule(id);
        self.set_phase(id, Phase::Following);
        if let Some(campaign) = self.all.remove(&id) {
            campaign.seat.finish();
        }
        if self.all.is_empty() {
            self.patience = None;
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

//! What an answer changes, and what time alone does.

use std::collections::HashSet;
use std::time::Duration;

use uuid::Uuid;

use super::{Campaigns, Id, Phase, Sights, Urgency};
use crate::election::retry::jittered;
use crate::election::rule::Standing;
use crate::election::store::Ask;
use crate::election::{ElectionError, Event, Lost, Term};

impl Campaigns {
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
            } else if renewed.contains(&ask.tenure()) {
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
        // Its own id is another guard's, or a lease that it may have taken without hearing of it.
        let news = campaign.seen.replace((leader, term)) != Some((leader, term));
        if news && leader != campaign.seat.me {
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
        campaign.in_doubt = false;
        let Some(term) = term else {
            let pause = jittered(campaign.settings.pause_when_busy());
            self.schedule_next(id, now + pause);
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
        let sure = self.all.get(&id).is_none_or(|campaign| !campaign.in_doubt);
        self.remove(id, sure);
    }

    /// Another session had the row locked: it is asked for again, soon and in silence.
    pub(crate) fn busy(&mut self, id: Id, now: Duration) {
        self.asked.remove(&id);
        let Some(campaign) = self.all.get_mut(&id) else {
            return;
        };
        campaign.in_doubt = false;
        match campaign.phase {
            Phase::Leaving { give_up, .. } if now >= give_up => self.remove(id, false),
            _ => {
                let pause = jittered(campaign.settings.pause_when_busy());
                self.schedule_next(id, now + pause);
            }
        }
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
                self.remove(*id, false);
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

    /// Wakes the followers of these namespaces: they have become vacant.
    pub(crate) fn wake(&mut self, vacant: &HashSet<String>, now: Duration) {
        let looks = self.due.range((Urgency::Look, Duration::ZERO, 0)..);
        let followers: Vec<Id> = looks
            .filter(|(urgency, at, id)| {
                *urgency == Urgency::Look && *at > now && vacant.contains(&*self.all[id].seat.ns)
            })
            .map(|(_, _, id)| *id)
            .collect();
        for id in followers {
            self.schedule(id, Urgency::Look, now);
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
}

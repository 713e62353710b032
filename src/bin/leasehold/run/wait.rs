//! Waiting for leadership, and saying so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::election::{Election, Event, Leader, LeaderGuard, Tenure};

use super::{News, Run, clock};
use crate::program::failure::Failure;
use crate::program::output::human;

/// For how long `--wait 0s` waits for the answer to its one try.
const ONE_TRY: Duration = Duration::from_secs(10);

pub enum Waited {
    Leads(Tenure),
    ToldToEnd,
    /// Not within `--wait`: who leads instead.
    Another(String),
    /// Not within `--wait`: what the database said, if anything.
    NoAnswer(String),
    /// The guard campaigns no more.
    Over,
}

impl Run {
    pub fn wait(&mut self, election: &Election, guard: &LeaderGuard) -> Result<Waited, Failure> {
        let _looking = self.look_at_the_leader(election);
        let mut obstacle = "the database has not answered".to_owned();
        let mut someone_leads = false;
        loop {
            if let Some(tenure) = guard.tenure() {
                return Ok(Waited::Leads(tenure));
            }
            if self.waited_too_long(someone_leads) {
                return Ok(match someone_leads {
                    true => Waited::Another(obstacle),
                    false => Waited::NoAnswer(obstacle),
                });
            }
            match self.news.recv_timeout(self.timing.poll) {
                Ok(News::Signal(signal)) if self.ends(signal) => return Ok(Waited::ToldToEnd),
                Ok(News::Guard(Event::LeaderChanged { leader, term })) => {
                    obstacle = format!("{leader} leads under term {term}");
                    someone_leads = true;
                    if !self.talk.shows_progress() {
                        self.talk.note(&format!("following {leader}, term {term}"));
                    }
                }
                Ok(News::Guard(Event::Unreachable { error })) => {
                    obstacle = error;
                    self.talk.note(&format!(
                        "the database is not reached, still trying: {obstacle}"
                    ));
                }
                Ok(News::Guard(Event::Lost { term, .. })) if self.args.once => {
                    self.talk.note(&format!(
                        "term {term} was lost before the command was started"
                    ));
                    return Ok(Waited::Over);
                }
                Ok(News::Following(leader)) => self.show(leader),
                _ => {}
            }
        }
    }

    fn waited_too_long(&self, someone_leads: bool) -> bool {
        let waited = clock::now() - self.started;
        match self.args.wait {
            None => false,
            Some(limit) if limit.is_zero() => someone_leads || waited > ONE_TRY,
            Some(limit) => waited >= limit,
        }
    }

    fn show(&mut self, leader: Option<Leader>) {
        let line = match leader {
            Some(leader) => {
                let id = leader.candidate_id.to_string();
                let (start, term, left) = (&id[..8], leader.term, human(leader.remaining));
                format!("following {start}… term {term}, lease ends in {left}")
            }
            None => "nobody leads; campaigning".to_owned(),
        };
        self.talk.passing(&line);
    }

    /// Looks once a second who leads, if somebody watches; ends when the result is dropped.
    fn look_at_the_leader(&self, election: &Election) -> Option<Looking> {
        if !self.talk.shows_progress() {
            return None;
        }
        let looking = Looking(Arc::new(AtomicBool::new(true)));
        let (on, election) = (looking.0.clone(), election.clone());
        let (ns, sender) = (self.args.ns.clone(), self.sender.clone());
        std::thread::spawn(move || {
            // The first answer of the guard comes sooner than that.
            std::thread::sleep(Duration::from_millis(300));
            while on.load(Ordering::Relaxed) {
                if let Ok(leader) = election.leader(ns.as_str())
                    && sender.send(News::Following(leader)).is_err()
                {
                    return;
                }
                std::thread::sleep(Duration::from_secs(1));
            }
        });
        Some(looking)
    }
}

struct Looking(Arc<AtomicBool>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

//! `leasehold status`: who leads and who stands by.

use std::time::Duration;

use anstyle::Style;
use chrono::{DateTime, Utc};
use leasehold::election::{Election, ElectionCandidate, Leader, Term};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::program::args::{DatabaseArgs, StatusArgs};
use crate::program::database::{Raw, Tables, bounded};
use crate::program::failure::{Failure, YES};
use crate::program::output::{
    DIM, GOOD, Grid, PLAIN, WARN, between, exact, human, print, print_json,
};

pub fn status(args: StatusArgs) -> Result<u8, Failure> {
    if args.watch {
        return crate::program::watch::watch(args);
    }
    let (timeout, json) = (args.answer.timeout, args.answer.json);
    let seen = bounded(timeout, move || {
        Watcher::open(&args.database, args.ns)?.look()
    })?;
    match json {
        true => print_json(&seen.json())?,
        false => print(&seen.lines().join("\n"))?,
    }
    Ok(YES)
}

/// What it takes to look again and again.
pub struct Watcher {
    election: Election,
    raw: Raw,
    ns: Option<String>,
}

impl Watcher {
    pub fn open(database: &DatabaseArgs, ns: Option<String>) -> Result<Watcher, Failure> {
        let election = database.open(Tables::MustExist, None)?;
        let raw = Raw::open(database)?;
        Ok(Watcher { election, raw, ns })
    }

    pub fn look(&mut self) -> Result<Snapshot, Failure> {
        let names = match &self.ns {
            Some(ns) => vec![ns.clone()],
            None => self.raw.namespaces()?,
        };
        let namespaces = names
            .into_iter()
            .map(|ns| self.namespace(ns))
            .collect::<Result<_, _>>()?;
        Ok(Snapshot {
            now: self.raw.now()?,
            namespaces,
        })
    }

    fn namespace(&self, ns: String) -> Result<Namespace, Failure> {
        let name = ns.as_str();
        Ok(Namespace {
            leader: self.election.leader(name)?,
            last_term: self.election.leader_row(name)?.map(|row| row.term),
            candidates: self.election.candidates(name)?,
            ns,
        })
    }
}

/// All that was seen, and when by the database's clock.
pub struct Snapshot {
    now: DateTime<Utc>,
    namespaces: Vec<Namespace>,
}

struct Namespace {
    ns: String,
    leader: Option<Leader>,
    last_term: Option<Term>,
    candidates: Vec<ElectionCandidate>,
}

impl Snapshot {
    pub fn json(&self) -> Value {
        let namespaces: Vec<Value> = self
            .namespaces
            .iter()
            .map(|one| one.json(self.now))
            .collect();
        json!({ "now": exact(self.now), "namespaces": namespaces })
    }

    /// One line for each candidate, after a heading.
    pub fn lines(&self) -> Vec<String> {
        let head = [
            "NAMESPACE",
            "CANDIDATE",
            "ROLE",
            "TERM",
            "ENDS IN",
            "LAST BEAT",
        ];
        let mut grid = Grid::new(&head);
        for namespace in &self.namespaces {
            namespace.rows(self.now, &mut grid);
        }
        if self.namespaces.is_empty() {
            return vec!["No namespace has had a candidate yet.".to_owned()];
        }
        grid.lines()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Role {
    Leader,
    Follower,
    Stale,
}

impl Role {
    fn shown(self) -> (&'static str, Style) {
        match self {
            Role::Leader => ("leader", GOOD),
            Role::Follower => ("follower", PLAIN),
            Role::Stale => ("stale", DIM),
        }
    }
}

impl Namespace {
    fn leads(&self, id: Uuid) -> bool {
        self.leader.is_some_and(|leader| leader.candidate_id == id)
    }

    fn role(&self, candidate: &ElectionCandidate, now: DateTime<Utc>) -> Role {
        match candidate.expires_at > now {
            _ if self.leads(candidate.candidate_id) => Role::Leader,
            true => Role::Follower,
            false => Role::Stale,
        }
    }

    fn rows(&self, now: DateTime<Utc>, grid: &mut Grid) {
        let none = || "-".to_owned();
        let beat = |candidate: Option<&ElectionCandidate>| {
            candidate.map_or_else(none, |one| {
                format!("{} ago", human(between(one.last_heartbeat_at, now)))
            })
        };
        match &self.leader {
            Some(leader) => {
                let registered = self
                    .candidates
                    .iter()
                    .find(|one| self.leads(one.candidate_id));
                let (id, term) = (leader.candidate_id.to_string(), leader.term.to_string());
                let ends = human(leader.remaining);
                let role = "leader".to_owned();
                grid.row(
                    GOOD,
                    vec![self.ns.clone(), id, role, term, ends, beat(registered)],
                );
            }
            None => {
                let term = self
                    .last_term
                    .map_or_else(none, |term| format!("after {term}"));
                let nobody = "nobody leads".to_owned();
                grid.row(
                    WARN,
                    vec![self.ns.clone(), nobody, none(), term, none(), none()],
                );
            }
        }
        let mut others: Vec<_> = self
            .candidates
            .iter()
            .map(|one| (self.role(one, now), one))
            .collect();
        others.sort_by_key(|(role, one)| (*role, one.candidate_id));
        for (role, candidate) in others.into_iter().filter(|(role, _)| *role != Role::Leader) {
            let (word, style) = role.shown();
            let ends = match role {
                Role::Stale => "over".to_owned(),
                _ => human(between(now, candidate.expires_at)),
            };
            let id = candidate.candidate_id.to_string();
            let cells = vec![
                self.ns.clone(),
                id,
                word.to_owned(),
                none(),
                ends,
                beat(Some(candidate)),
            ];
            grid.row(style, cells);
        }
    }

    fn json(&self, now: DateTime<Utc>) -> Value {
        let candidates = self.candidates.iter().map(|one| {
            json!({
                "candidate_id": one.candidate_id,
                "live": one.expires_at > now,
                "leads": self.leads(one.candidate_id),
                "last_heartbeat_at": exact(one.last_heartbeat_at),
                "expires_at": exact(one.expires_at),
            })
        });
        json!({
            "ns": self.ns,
            "leader": self.leader.map(|leader| json!({
                "candidate_id": leader.candidate_id,
                "term": leader.term.get(),
                "remaining_ms": millis(leader.remaining),
            })),
            "last_term": self.last_term.map(Term::get),
            "candidates": candidates.collect::<Vec<_>>(),
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

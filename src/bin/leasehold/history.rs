//! `leasehold history`: who led when, as text, JSON or a picture.

use std::path::Path;
use std::time::Duration;

use chrono::{DateTime, Utc};
use leasehold::election::{ElectionLeader, Ending, TenureRecord};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::program::args::HistoryArgs;
use crate::program::database::{Raw, Tables, bounded};
use crate::program::failure::{ERROR, Failure, YES};
use crate::program::output::{
    DIM, GOOD, Grid, PLAIN, WARN, between, clock, exact, human, print, print_json,
};

pub fn history(args: HistoryArgs) -> Result<u8, Failure> {
    let (json, svg, ns) = (
        args.place.answer.json,
        args.svg.clone(),
        args.place.ns.clone(),
    );
    let (tenures, now) = bounded(args.place.answer.timeout, move || read(&args))?;
    match svg {
        Some(file) => write(&file, &crate::program::svg::timeline(&ns, &tenures, now))?,
        None if json => print_json(&as_json(&ns, &tenures))?,
        None => print(&as_text(&ns, &tenures, now))?,
    }
    Ok(YES)
}

/// How a tenure ended, or that it has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    Leads,
    Resigned,
    Expired,
    Superseded,
    /// The row says nothing, and the leader row is about a later term.
    Unknown,
}

impl End {
    pub fn word(self) -> &'static str {
        match self {
            End::Leads => "leads",
            End::Resigned => "resigned",
            End::Expired => "expired",
            End::Superseded => "superseded",
            End::Unknown => "unknown",
        }
    }
}

/// One tenure, with an end that can be drawn.
#[derive(Debug, Clone)]
pub struct Tenure {
    pub term: i64,
    pub leader: Uuid,
    pub began: DateTime<Utc>,
    /// Of a tenure that lasts: now.
    pub ended: DateTime<Utc>,
    pub end: End,
}

impl Tenure {
    pub fn lasted(&self) -> Duration {
        between(self.began, self.ended)
    }
}

/// The tenures, the oldest first, and the database's now.
fn read(args: &HistoryArgs) -> Result<(Vec<Tenure>, DateTime<Utc>), Failure> {
    let election = args.place.database.open(Tables::MustExist, None)?;
    let ns = args.place.ns.as_str();
    let row = election.leader_row(ns)?;
    let mut records = election.history(ns, args.limit)?;
    let now = Raw::open(&args.place.database)?.now()?;
    records.reverse();
    let next_began = records
        .iter()
        .skip(1)
        .map(|next| Some(next.began_at))
        .chain([None]);
    let tenures = records.iter().zip(next_began);
    let tenures = tenures
        .map(|(record, next)| tenure(record, next, row.as_ref(), now))
        .collect();
    Ok((tenures, now))
}

fn tenure(
    record: &TenureRecord,
    next: Option<DateTime<Utc>>,
    row: Option<&ElectionLeader>,
    now: DateTime<Utc>,
) -> Tenure {
    let lease_end = row
        .filter(|row| row.term == record.term && row.leader_id == Some(record.leader_id))
        .and_then(|row| row.lease_expires_at);
    let (ended, end) = match (record.ended_at, record.ended_by, lease_end) {
        (Some(ended), Some(Ending::Resigned), _) => (ended, End::Resigned),
        (Some(ended), Some(Ending::Expired), _) => (ended, End::Expired),
        (Some(ended), Some(Ending::Superseded), _) => (ended, End::Superseded),
        (Some(ended), ..) => (ended, End::Unknown),
        (None, _, Some(end)) if end > now => (now, End::Leads),
        // Nobody has come since to write down that it ran out.
        (None, _, Some(end)) => (end, End::Expired),
        (None, _, None) => (next.unwrap_or(record.began_at), End::Unknown),
    };
    Tenure {
        term: record.term.get(),
        leader: record.leader_id,
        began: record.began_at,
        ended: ended.max(record.began_at),
        end,
    }
}

fn as_text(ns: &str, tenures: &[Tenure], now: DateTime<Utc>) -> String {
    if tenures.is_empty() {
        return format!("Nobody has led {ns:?} yet.");
    }
    let mut grid = Grid::new(&[
        "TERM",
        "LEADER",
        "BEGAN (UTC)",
        "ENDED (UTC)",
        "LASTED",
        "END",
        "THEN NOBODY FOR",
    ]);
    let next_began = tenures
        .iter()
        .skip(1)
        .map(|next| Some(next.began))
        .chain([None]);
    for (tenure, next) in tenures.iter().zip(next_began) {
        let leads = tenure.end == End::Leads;
        let ended = if leads {
            "-".to_owned()
        } else {
            clock(tenure.ended)
        };
        let until = next.unwrap_or(now);
        let gap = between(tenure.ended, until);
        let gap = if gap < Duration::from_millis(1) || leads {
            "-".to_owned()
        } else {
            human(gap)
        };
        let style = match tenure.end {
            End::Leads => GOOD,
            End::Resigned => PLAIN,
            End::Expired | End::Superseded => WARN,
            End::Unknown => DIM,
        };
        let (term, leader) = (tenure.term.to_string(), tenure.leader.to_string());
        let word = tenure.end.word().to_owned();
        grid.row(
            style,
            vec![
                term,
                leader,
                clock(tenure.began),
                ended,
                human(tenure.lasted()),
                word,
                gap,
            ],
        );
    }
    grid.lines().join("\n")
}

fn as_json(ns: &str, tenures: &[Tenure]) -> Value {
    let tenures = tenures.iter().map(|tenure| {
        let leads = tenure.end == End::Leads;
        json!({
            "term": tenure.term,
            "leader_id": tenure.leader,
            "began_at": exact(tenure.began),
            "ended_at": (!leads).then(|| exact(tenure.ended)),
            "end": tenure.end.word(),
        })
    });
    json!({ "ns": ns, "tenures": tenures.collect::<Vec<_>>() })
}

fn write(file: &Path, picture: &str) -> Result<(), Failure> {
    if file == Path::new("-") {
        return print(picture);
    }
    std::fs::write(file, picture).map_err(|error| {
        let what = format!(
            "the picture cannot be written to {}: {error}",
            file.display()
        );
        Failure::new(ERROR, what, "give another file")
    })
}

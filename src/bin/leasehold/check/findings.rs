//! What one check found, and the checks that are the same on every database.

use std::time::{Duration, Instant};

use chrono::Utc;

use crate::program::database::Raw;
use crate::program::failure::Failure;
use crate::program::output::human;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Good,
    /// It works, but may surprise.
    Warn,
    /// It does not work, or not safely.
    Bad,
}

pub const PRIMARY: &str = "primary";

pub struct Finding {
    pub name: &'static str,
    pub verdict: Verdict,
    pub what: String,
    pub advice: String,
}

impl Finding {
    fn new(
        name: &'static str,
        verdict: Verdict,
        what: impl Into<String>,
        advice: impl Into<String>,
    ) -> Finding {
        Finding {
            name,
            verdict,
            what: what.into(),
            advice: advice.into(),
        }
    }

    pub fn good(name: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(name, Verdict::Good, what, "")
    }

    pub fn warn(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(name, Verdict::Warn, what, advice)
    }

    pub fn bad(name: &'static str, what: impl Into<String>, advice: impl Into<String>) -> Finding {
        Finding::new(name, Verdict::Bad, what, advice)
    }

    /// Whether it is that the server takes no writes.
    pub fn is_a_replica(&self) -> bool {
        self.name == PRIMARY && self.verdict == Verdict::Bad
    }

    /// Good if it `holds`, else a warning with that advice.
    pub fn warn_unless(
        holds: bool,
        name: &'static str,
        what: impl Into<String>,
        advice: &str,
    ) -> Finding {
        match holds {
            true => Finding::good(name, what),
            false => Finding::warn(name, what, advice),
        }
    }

    pub fn bad_unless(
        holds: bool,
        name: &'static str,
        what: impl Into<String>,
        advice: &str,
    ) -> Finding {
        match holds {
            true => Finding::good(name, what),
            false => Finding::bad(name, what, advice),
        }
    }
}

/// The time of one question, the best of five.
pub fn round_trip(raw: &mut Raw) -> Result<Duration, Failure> {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let began = Instant::now();
        raw.now()?;
        best = best.min(began.elapsed());
    }
    Ok(best)
}

/// How far this machine's clock is from the database's, as far as a question can tell.
pub fn clock(raw: &mut Raw) -> Result<Finding, Failure> {
    let (before, began) = (Utc::now(), Instant::now());
    let theirs = raw.now()?;
    let half = began.elapsed() / 2;
    let ours = before + half;
    let skew = (theirs - ours).abs().to_std().unwrap_or_default();
    let certain = skew.saturating_sub(half);
    let word = if theirs < ours { "ahead of" } else { "behind" };
    let what = format!(
        "this machine's clock is {} {word} the database's (±{})",
        human(skew),
        human(half)
    );
    let advice = "leases are not affected, they use the database's clock alone; set both clocks by NTP so that logs agree";
    Ok(Finding::warn_unless(
        certain < Duration::from_secs(1),
        "clock",
        what,
        advice,
    ))
}

//! `leasehold check`: what would disturb an election on this database, and what to do about each.

mod findings;
mod servers;

use std::time::Duration;

use serde_json::json;

use crate::program::args::CheckArgs;
use crate::program::database::{Kind, Raw, Tables, bounded};
use crate::program::failure::{Failure, NO, YES};
use crate::program::output::{BAD, GOOD, HEAD, WARN, print, print_json};
use findings::{Finding, Verdict};

pub fn check(args: CheckArgs) -> Result<u8, Failure> {
    let json = args.answer.json;
    let findings = bounded(args.answer.timeout, move || look(&args))?;
    match json {
        true => print_json(&as_json(&findings))?,
        false => print(&as_text(&findings))?,
    }
    let bad = findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Bad);
    Ok(if bad { NO } else { YES })
}

fn look(args: &CheckArgs) -> Result<Vec<Finding>, Failure> {
    // Tables that are missing are a finding; any other error here is the answer.
    let schema = match args.database.open(Tables::MustExist, None) {
        Ok(_) => Finding::good("schema", "the election tables are up to date"),
        Err(failure) if failure.code == crate::program::failure::ERROR => {
            match Raw::open(&args.database) {
                Ok(_) if failure.to_string().contains("election tables") => {
                    let what = "the election tables are missing or of an older version";
                    Finding::bad(
                        "schema",
                        what,
                        "run `leasehold migrate` against this database",
                    )
                }
                _ => return Err(failure),
            }
        }
        Err(failure) => return Err(failure),
    };
    let mut raw = Raw::open(&args.database)?;
    let mut findings = vec![schema, findings::clock(&mut raw)?];
    let (database, expire) = (&args.database, args.expire);
    findings.extend(match raw.kind() {
        Kind::Postgres => servers::postgres(&mut raw, database, expire),
        Kind::Mysql => servers::mysql(&mut raw, expire),
        Kind::Sqlite => servers::sqlite(&mut raw),
    });
    findings.push(lease(expire, findings::round_trip(&mut raw)?));
    Ok(findings)
}

/// Whether the lease leaves time for the beats it takes.
fn lease(expire: Duration, round_trip: Duration) -> Finding {
    let what = format!(
        "a question takes {:.1} ms; a lease of {} lives for {:.0} of them",
        round_trip.as_secs_f64() * 1e3,
        crate::program::output::human(expire),
        expire.as_secs_f64() / round_trip.as_secs_f64().max(1e-6),
    );
    match round_trip * 40 < expire {
        true => Finding::good("lease", what),
        false => Finding::warn(
            "lease",
            what,
            "use a longer --expire, or a database that is nearer",
        ),
    }
}

fn as_text(findings: &[Finding]) -> String {
    let lines = findings.iter().map(|finding| {
        let (style, word) = match finding.verdict {
            Verdict::Good => (GOOD, "good"),
            Verdict::Warn => (WARN, "warn"),
            Verdict::Bad => (BAD, "bad "),
        };
        let name = finding.name;
        let mut line = format!(
            "{style}{word}{style:#}  {HEAD}{name:<16}{HEAD:#}  {}",
            finding.what
        );
        if !finding.advice.is_empty() {
            line.push_str(&format!("\n{:24}→ {}", "", finding.advice));
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn as_json(findings: &[Finding]) -> serde_json::Value {
    let findings = findings.iter().map(|finding| {
        let verdict = match finding.verdict {
            Verdict::Good => "good",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        };
        let advice = (!finding.advice.is_empty()).then_some(&finding.advice);
        json!({ "check": finding.name, "verdict": verdict, "found": finding.what, "advice": advice })
    });
    json!({ "findings": findings.collect::<Vec<_>>() })
}

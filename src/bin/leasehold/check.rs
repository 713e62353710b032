//! `leasehold check`: what would disturb an election on this database, and what to do about each.

#[path = "../../operation/filesystem.rs"]
mod filesystem;
mod findings;
mod privileges;
mod servers;

use std::time::Duration;

use serde_json::json;

use crate::program::args::{CheckArgs, DatabaseArgs};
use crate::program::database::{Kind, Raw, bounded};
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
    // The way that is right behind a pooler is right everywhere; whether there is one is not known yet.
    let careful = DatabaseArgs {
        pooler: true,
        ..args.database.clone()
    };
    let has_tables = careful.has_tables()?;
    let pooler = servers::pooler(&careful)?;
    let mut raw = Raw::open(&DatabaseArgs {
        pooler: pooler.shared || args.database.pooler,
        ..args.database.clone()
    })?;
    let mut findings = vec![schema(has_tables), findings::clock(&mut raw)?];
    let expire = args.expire;
    findings.extend(match raw.kind() {
        Kind::Postgres => servers::postgres(&mut raw, &args.database, &pooler, expire),
        Kind::Mysql => servers::mysql(&mut raw, expire),
        Kind::Sqlite => servers::sqlite(&mut raw, &args.database),
    });
    let takes_writes = !findings.iter().any(Finding::is_a_replica);
    if has_tables && takes_writes {
        findings.push(privileges::privileges(&mut raw));
    }
    findings.push(lease(expire, findings::round_trip(&mut raw)?));
    Ok(findings)
}

fn schema(has_tables: bool) -> Finding {
    Finding::bad_unless(
        has_tables,
        "schema",
        match has_tables {
            true => "the election tables are up to date",
            false => "the election tables are missing or of an older version",
        },
        "run `leasehold migrate` against this database",
    )
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

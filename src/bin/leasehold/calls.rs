//! One subcommand for each documented function.

use leasehold::election::Election;
use serde_json::json;
use uuid::Uuid;

use crate::program::args::{CandidateArgs, NamespaceArgs};
use crate::program::database::{Tables, bounded};
use crate::program::failure::{Failure, NO, YES};
use crate::program::output::{print, print_json};

pub fn elect(args: CandidateArgs) -> Result<u8, Failure> {
    let (id, json) = (args.id, args.place.answer.json);
    let leader = on_election(args, Tables::Create, |election, id, ns| {
        election.elect(id, ns)
    })?;
    match json {
        true => print_json(&json!({ "leader": leader, "elected": leader == id }))?,
        false => print(&leader.to_string())?,
    }
    Ok(yes_if(leader == id))
}

pub fn heartbeat(args: CandidateArgs) -> Result<u8, Failure> {
    done(args, "registered", |election, id, ns| {
        election.heartbeat(id, ns)
    })
}

pub fn register(args: CandidateArgs) -> Result<u8, Failure> {
    done(args, "registered", |election, id, ns| {
        election.register_candidate(id, ns)
    })
}

pub fn unregister(args: CandidateArgs) -> Result<u8, Failure> {
    let (id, ns, json) = (args.id, args.place.ns.clone(), args.place.answer.json);
    let (led, stood) = on_election(args, Tables::MustExist, |election, id, ns| {
        let led = election.is_leader(id, ns)?;
        // Who leads is not looked for, and a row of others that cannot be read keeps nobody here.
        let stood = led
            || election
                .candidates(ns)
                .map_or(true, |rows| rows.iter().any(|row| row.candidate_id == id));
        election.unregister_candidate(id, ns)?;
        Ok((led, stood))
    })?;
    if json {
        print_json(&json!({ "unregistered": id, "led": led, "stood": stood }))?;
    } else {
        print(&match (led, stood) {
            (true, _) => format!("Removed from {ns:?}, which it led until now."),
            (false, true) => format!("Removed from {ns:?}, which it did not lead."),
            (false, false) => format!("Nobody of that id in {ns:?}."),
        })?;
    }
    Ok(YES)
}

pub fn is_leader(args: CandidateArgs) -> Result<u8, Failure> {
    let json = args.place.answer.json;
    let leads = on_election(args, Tables::MustExist, |election, id, ns| {
        election.is_leader(id, ns)
    })?;
    match json {
        true => print_json(&json!({ "is_leader": leads }))?,
        false => print(if leads { "yes" } else { "no" })?,
    }
    Ok(yes_if(leads))
}

pub fn leader(args: NamespaceArgs) -> Result<u8, Failure> {
    let json = args.answer.json;
    let leader = bounded(args.answer.timeout, move || {
        let election = args.database.open(Tables::MustExist, None)?;
        Ok(election.leader(args.ns.as_str())?)
    })?;
    match (&leader, json) {
        (Some(leader), false) => print(&leader.candidate_id.to_string())?,
        (None, false) => {}
        (_, true) => print_json(&json!({ "leader": leader.map(|leader| json!({
            "candidate_id": leader.candidate_id,
            "term": leader.term.get(),
            "remaining_ms": leader.remaining.as_millis() as u64,
        })) }))?,
    }
    Ok(yes_if(leader.is_some()))
}

pub fn candidates(args: NamespaceArgs) -> Result<u8, Failure> {
    let json = args.answer.json;
    let candidates = bounded(args.answer.timeout, move || {
        let election = args.database.open(Tables::MustExist, None)?;
        Ok(election.list_candidates(args.ns.as_str())?)
    })?;
    if json {
        print_json(&json!({ "candidates": candidates }))?;
    } else if !candidates.is_empty() {
        let lines: Vec<String> = candidates.iter().map(Uuid::to_string).collect();
        print(&lines.join("\n"))?;
    }
    Ok(YES)
}

fn done<F>(args: CandidateArgs, word: &'static str, call: F) -> Result<u8, Failure>
where
    F: FnOnce(&Election, Uuid, &str) -> Result<(), leasehold::election::ElectionError>
        + Send
        + 'static,
{
    let (id, json) = (args.id, args.place.answer.json);
    on_election(args, Tables::Create, call)?;
    if json {
        print_json(&json!({ word: id }))?;
    }
    Ok(YES)
}

fn on_election<T, F>(args: CandidateArgs, tables: Tables, call: F) -> Result<T, Failure>
where
    T: Send + 'static,
    F: FnOnce(&Election, Uuid, &str) -> Result<T, leasehold::election::ElectionError>
        + Send
        + 'static,
{
    bounded(args.place.answer.timeout, move || {
        let election = args.place.database.open(tables, Some(args.expire))?;
        Ok(call(&election, args.id, &args.place.ns)?)
    })
}

fn yes_if(yes: bool) -> u8 {
    if yes { YES } else { NO }
}

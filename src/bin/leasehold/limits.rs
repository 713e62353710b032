//! What can be refused by looking at the command line alone, before anything is opened.
//!
//! The library judges the same when it is called. By then a connection has been made, and a database that is down would
//! hide the mistake, or a working one would have been given tables for nothing.

use std::time::Duration;

use leasehold::election::validate_namespace;

use crate::program::args::{CandidateArgs, Command, RunArgs};
use crate::program::failure::{Failure, USAGE};

/// The shortest lease in which a command can be ended in good order.
const SHORTEST_OF_RUN: Duration = Duration::from_secs(1);
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

impl Command {
    /// Refuses what no database would be asked for.
    pub fn within_limits(&self) -> Result<(), Failure> {
        match self {
            Command::Run(args) => of_run(args),
            Command::Elect(args)
            | Command::Heartbeat(args)
            | Command::Register(args)
            | Command::Unregister(args)
            | Command::IsLeader(args) => of_candidate(args),
            Command::Leader(args) | Command::Candidates(args) => namespace(&args.ns),
            Command::History(args) => namespace(&args.place.ns),
            Command::Status(args) => args.ns.as_deref().map_or(Ok(()), namespace),
            Command::Check(args) => lease(args.expire, SHORTEST, "100ms"),
            Command::Migrate(_) | Command::Lease(_) | Command::Completions(_) | Command::Man(_) => {
                Ok(())
            }
        }
    }
}

fn of_run(args: &RunArgs) -> Result<(), Failure> {
    namespace(&args.ns)?;
    lease(args.expire, SHORTEST_OF_RUN, "1s")
}

fn of_candidate(args: &CandidateArgs) -> Result<(), Failure> {
    namespace(&args.place.ns)?;
    lease(args.expire, SHORTEST, "100ms")
}

fn namespace(ns: &str) -> Result<(), Failure> {
    Ok(validate_namespace(ns)?)
}

fn lease(expire: Duration, shortest: Duration, written: &str) -> Result<(), Failure> {
    if (shortest..=LONGEST).contains(&expire) {
        return Ok(());
    }
    let shown = humantime::format_duration(expire);
    Err(Failure::new(
        USAGE,
        format!("a lease of {shown} is refused"),
        format!("give an --expire of {written} to 365d"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_every_limit_are_inside_it() {
        assert!(lease(LONGEST, SHORTEST, "100ms").is_ok());
        assert!(lease(SHORTEST, SHORTEST, "100ms").is_ok());
        for bad in [
            Duration::ZERO,
            LONGEST + Duration::from_nanos(1),
            Duration::MAX,
        ] {
            assert!(lease(bad, SHORTEST, "100ms").is_err(), "{bad:?}");
        }
    }
}

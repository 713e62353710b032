//! What every build with a database does: the command line is read, one command runs, and its answer is an exit code.

mod args;
mod calls;
mod check;
mod database;
mod docs;
mod failure;
mod history;
mod lease;
mod limits;
mod migrate;
mod output;
mod run;
mod status;
mod svg;
mod usage;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use args::{Cli, Command};
use failure::Failure;

pub fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(code) = run::warden::entered(&arguments) {
        return code;
    }
    let parsed = Cli::command()
        .try_get_matches_from(&arguments)
        .and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (cli, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => return usage::report(&error, &arguments),
    };
    args::warn_of_password(&matches);
    let command = cli.command;
    match command.within_limits().and_then(|()| dispatch(command)) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.code)
        }
    }
}

fn dispatch(command: Command) -> Result<u8, Failure> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Elect(args) => calls::elect(args),
        Command::Heartbeat(args) => calls::heartbeat(args),
        Command::Register(args) => calls::register(args),
        Command::Unregister(args) => calls::unregister(args),
        Command::IsLeader(args) => calls::is_leader(args),
        Command::Leader(args) => calls::leader(args),
        Command::Candidates(args) => calls::candidates(args),
        Command::Status(args) => status::status(args),
        Command::History(args) => history::history(args),
        Command::Check(args) => check::check(args),
        Command::Migrate(args) => migrate::migrate(args),
        Command::Lease(args) => lease::lease(args),
        Command::Completions(args) => docs::completions(args),
        Command::Man(args) => docs::man(args),
    }
}

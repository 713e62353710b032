//! What was mistyped, told as every other failure is: what happened, and what to do.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::CommandFactory;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::program::args::Cli;
use crate::program::failure::{Failure, USAGE, censor_arguments};
use crate::program::output::say;

/// Help and version go to stdout and are no failure. What was mistyped is shown, but no password in it.
pub fn report(error: &clap::Error, arguments: &[OsString]) -> ExitCode {
    if !error.use_stderr() {
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    match error.kind() {
        // Whoever types nothing asks what there is.
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            say(error.render().ansi().to_string().trim_end());
        }
        _ => told(error, arguments).report(),
    }
    ExitCode::from(USAGE)
}

/// The parser's own words, without its headings.
fn told(error: &clap::Error, arguments: &[OsString]) -> Failure {
    let text = censor_arguments(&error.render().to_string(), arguments);
    let what = text.split("\n\n").next().unwrap_or_default();
    let mut lines = what.lines().map(str::trim);
    let first = lines.next().unwrap_or_default();
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let rest: Vec<&str> = lines.collect();
    let what = format!("{first} {}", rest.join(", "));

    let tips = text
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tip: "));
    let database = lacks_the_database(error)
        .then_some("put the database's URL into LEASEHOLD_DATABASE_URL, or give --database");
    let help = format!("see `{} --help`", asked_for(arguments));
    let advice: Vec<&str> = database.into_iter().chain(tips).chain([&*help]).collect();
    Failure::new(USAGE, what.trim_end(), advice.join("; "))
}

fn lacks_the_database(error: &clap::Error) -> bool {
    let missing = match (error.kind(), error.get(ContextKind::InvalidArg)) {
        (ErrorKind::MissingRequiredArgument, Some(ContextValue::Strings(missing))) => missing,
        _ => return false,
    };
    missing.iter().any(|name| name.starts_with("--database"))
}

/// The command that was named, as far as it is one.
fn asked_for(arguments: &[OsString]) -> String {
    let mut command = Cli::command();
    let mut words = vec!["leasehold".to_owned()];
    for argument in arguments.iter().skip(1) {
        let Some(inner) = command.find_subcommand(argument).cloned() else {
            break;
        };
        words.push(inner.get_name().to_owned());
        command = inner;
    }
    words.join(" ")
}

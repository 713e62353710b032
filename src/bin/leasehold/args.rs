//! The command line: every command, option and help text.

use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Parser, Subcommand};
use uuid::Uuid;

use crate::program::failure::passwords;

/// Run a command only while leader, and see who leads
///
/// The database is named by --database or, better, by the environment variable LEASEHOLD_DATABASE_URL:
/// postgres://USER:PASSWORD@HOST/DATABASE, mysql://USER:PASSWORD@HOST/DATABASE or sqlite:PATH.
#[derive(Parser)]
#[command(name = "leasehold", version, max_term_width = 100, after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit codes: 0 yes or done, 1 no (not leader, nobody leads, a conflict), 2 wrong usage,
3 database or file error, 4 leadership lost. `run` passes on the code of its command.

Try:  export LEASEHOLD_DATABASE_URL=sqlite:/tmp/try.db
      leasehold run --ns try -- leasehold status";

#[derive(Subcommand)]
pub enum Command {
    /// Run a command only while leader; end it before the lease does
    ///
    /// Runs CMD only while this process leads the namespace, in a process group of its own, with LEASEHOLD_NS, LEASEHOLD_TERM and
    /// LEASEHOLD_CANDIDATE in its environment. Signals are passed on to it. When leadership is lost, CMD and all it started get
    /// SIGTERM after two thirds of the lease without a renewal, and SIGKILL before the lease ends; SIGKILL at once when the next renewal
    /// finds the lease taken away (`unregister`) or with another leader. The lease is released after CMD has ended, whose exit code is
    /// passed on (128 + N for a signal N; 126 and 127 if it cannot be started).
    Run(RunArgs),
    /// Take or renew leadership once, and print who leads then
    Elect(CandidateArgs),
    /// Refresh the registration of a candidate
    Heartbeat(CandidateArgs),
    /// Register a candidate
    Register(CandidateArgs),
    /// Remove a candidate, and its leadership if it leads
    Unregister(CandidateArgs),
    /// Exit with 0 if the candidate leads, with 1 if not
    IsLeader(CandidateArgs),
    /// Print who leads; exit with 1 if nobody does
    Leader(NamespaceArgs),
    /// Print the registered candidates
    Candidates(NamespaceArgs),
    /// Show leaders and candidates as a table
    Status(StatusArgs),
    /// Show who led when
    History(HistoryArgs),
    /// Look for what would disturb an election on this database
    Check(CheckArgs),
    /// Create the election tables, or bring them up to date
    Migrate(MigrateArgs),
    /// Owner leases in a directory of this machine, as JSON
    ///
    /// Every command prints one JSON object. `renew`, `take-over` and `release` read the lease they are about from stdin: what
    /// `acquire` or `inspect` printed, or the lease in it. It holds the secret token of the lease.
    ///
    /// Identifiers are 64 hexadecimal digits; `printf 'nightly export' | sha256sum | cut -c1-64` makes one.
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Print a completion script for a shell
    Completions(CompletionsArgs),
    /// Print the manual page
    Man(ManArgs),
}

#[derive(Args, Clone)]
pub struct DatabaseArgs {
    /// The database: postgres://…, mysql://… or sqlite:PATH
    ///
    /// A password belongs into the environment variable: arguments can be read by every user of the machine.
    #[arg(
        long,
        value_name = "URL",
        env = "LEASEHOLD_DATABASE_URL",
        hide_env_values = true
    )]
    pub database: String,
    /// The database is behind a transaction pooler, such as PgBouncer
    #[arg(long)]
    pub pooler: bool,
}

#[derive(Args)]
pub struct NamespaceArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The namespace: what is led
    #[arg(
        long,
        value_name = "NS",
        env = "LEASEHOLD_NS",
        default_value = "default"
    )]
    pub ns: String,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Args)]
pub struct AnswerArgs {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Give up on a database that does not answer after so long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = some_time)]
    pub timeout: Duration,
}

#[derive(Args)]
pub struct CandidateArgs {
    #[command(flatten)]
    pub place: NamespaceArgs,
    /// The candidate
    #[arg(long, value_name = "UUID", env = "LEASEHOLD_CANDIDATE")]
    pub id: Uuid,
    /// How long the lease and the registration last from now
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = duration)]
    pub expire: Duration,
}

#[derive(Args)]
#[command(after_help = RUN_HELP)]
pub struct RunArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The namespace: what shall run once
    #[arg(long, value_name = "NS")]
    pub ns: String,
    /// This candidate; a new random one by default
    #[arg(long, value_name = "UUID")]
    pub id: Option<Uuid>,
    /// The lease: after a crash the namespace is free so much later (1s to 365d)
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub expire: Duration,
    /// Exit with 4 when leadership is lost, instead of campaigning again
    #[arg(long)]
    pub once: bool,
    /// Give up with exit code 1 if somebody else still leads after so long; 0s tries once
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub wait: Option<Duration>,
    /// Keep the lease for at least so long from the election, also when CMD ends earlier
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub hold: Option<Duration>,
    /// After TERM, INT, QUIT or HUP, give CMD so long before SIGKILL; by default it has as long as it leads
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub kill_after: Option<Duration>,
    /// Say nothing but errors; that somebody else leads is none
    #[arg(long, short)]
    pub quiet: bool,
    /// The command and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    pub command: Vec<std::ffi::OsString>,
}

const RUN_HELP: &str = "\
A worker of which one runs:   leasehold run --ns mailer -- /usr/bin/mailer
A cron job once in a fleet:   leasehold run --ns nightly --wait 0s --hold 5m -- nightly-report";

#[derive(Args)]
pub struct StatusArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Only this namespace; all of them by default
    #[arg(long, value_name = "NS")]
    pub ns: Option<String>,
    /// Show it again and again, in place, until interrupted
    #[arg(long)]
    pub watch: bool,
    /// How often --watch looks
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = duration, requires = "watch")]
    pub interval: Duration,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Args)]
pub struct HistoryArgs {
    #[command(flatten)]
    pub place: NamespaceArgs,
    /// Write a picture of it to this file; `-` for stdout
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    pub svg: Option<PathBuf>,
    /// How many tenures, counted from the newest (1 to 1000)
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub limit: u32,
}

#[derive(Args)]
pub struct CheckArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// The lease that elections here use, to judge timeouts by
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = duration)]
    pub expire: Duration,
    #[command(flatten)]
    pub answer: AnswerArgs,
}

#[derive(Args)]
pub struct MigrateArgs {
    #[command(flatten)]
    pub database: DatabaseArgs,
    /// Print the SQL for this kind of database, and connect to nothing
    #[arg(long)]
    pub print: bool,
    /// Give up on a database that does not answer after so long
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = some_time)]
    pub timeout: Duration,
}

#[derive(Subcommand)]
pub enum LeaseCommand {
    /// Print whether a scope is absent (free), active or expired
    Inspect {
        #[command(flatten)]
        scope: ScopeArgs,
    },
    /// Take the lease of a free scope; exit with 1 if it is not free
    Acquire {
        #[command(flatten)]
        scope: ScopeArgs,
        /// The owner; a new random one by default
        #[arg(long, value_name = "HEX")]
        owner: Option<String>,
        /// How long the lease lasts from now
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        lease: Duration,
    },
    /// Extend the live lease that stdin names
    Renew {
        #[command(flatten)]
        root: RootArgs,
        /// How long the lease lasts from now
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        lease: Duration,
    },
    /// Take over the expired lease that stdin names, as a new owner with a new token
    TakeOver {
        #[command(flatten)]
        root: RootArgs,
        /// The new owner; a random one by default
        #[arg(long, value_name = "HEX")]
        owner: Option<String>,
        /// The operation, if it is another than that of the expired lease
        #[arg(long, value_name = "HEX")]
        operation: Option<String>,
        /// How long the lease lasts from now
        #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
        lease: Duration,
    },
    /// Give the lease back that stdin names
    Release {
        #[command(flatten)]
        root: RootArgs,
    },
}

#[derive(Args)]
pub struct RootArgs {
    /// The storage root: a directory on a local disk
    #[arg(long, value_name = "DIR")]
    pub root: PathBuf,
    /// Use this time instead of the machine's clock (RFC 3339)
    #[arg(long, value_name = "TIME")]
    pub at: Option<chrono::DateTime<chrono::Utc>>,
    /// How long to wait for the lock of the directory
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = duration)]
    pub lock_timeout: Duration,
}

#[derive(Args)]
pub struct ScopeArgs {
    #[command(flatten)]
    pub root: RootArgs,
    /// What must not run twice at once
    #[arg(long, value_name = "HEX")]
    pub scope: String,
    /// The operation that runs
    #[arg(long, value_name = "HEX")]
    pub operation: String,
}

#[derive(Args)]
pub struct CompletionsArgs {
    /// Which shell
    pub shell: clap_complete::Shell,
}

#[derive(Args)]
pub struct ManArgs {
    /// Write one page for each command into this directory instead
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Longer than anybody waits, and short enough to be added to any clock.
const LONGEST_DURATION: Duration = Duration::from_secs(36_525 * 24 * 60 * 60);

fn duration(text: &str) -> Result<Duration, String> {
    let parsed = humantime::parse_duration(text)
        .map_err(|error| format!("{error}; write it as 15s, 500ms or 2m"))?;
    match parsed <= LONGEST_DURATION {
        true => Ok(parsed),
        false => Err("that is more than a century; give less".to_owned()),
    }
}

fn some_time(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        Duration::ZERO => Err("nothing is done in no time; give more".to_owned()),
        time => Ok(time),
    }
}

/// A password in an argument is there for all to read, in `ps` and in the shell's history.
pub fn warn_of_password(matches: &ArgMatches) {
    let mut innermost = matches;
    while let Some((_, inner)) = innermost.subcommand() {
        innermost = inner;
    }
    // Asked for by a name that a command may lack: `try_` returns an error instead of a panic then.
    let Ok(Some(url)) = innermost.try_get_one::<String>("database") else {
        return;
    };
    let typed = innermost.value_source("database") == Some(ValueSource::CommandLine);
    if typed && !passwords(url).is_empty() {
        let style = crate::program::output::WARN;
        crate::program::output::say(&format!(
            "{style}leasehold:{style:#} Every user of this machine can read the password in --database.\n\
             Put the URL into the environment variable LEASEHOLD_DATABASE_URL instead."
        ));
    }
}

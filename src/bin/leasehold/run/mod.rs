//! `leasehold run`: a command runs only while this process leads.

mod clock;
mod command;
mod descent;
mod link;
mod signals;
mod talk;
mod terminal;
mod timing;
mod wait;
pub mod warden;

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use leasehold::election::{Election, Event, Leader, LeaderGuard, Lost, Tenure};
use nix::sys::signal::Signal as Caught;
use uuid::Uuid;

use crate::program::args::RunArgs;
use crate::program::database::Tables;
use crate::program::failure::{ERROR, Failure, LOST, NO};
use crate::program::output::human;
use link::{Outcome, Report};
use talk::Talk;
use terminal::Terminal;
use timing::Timing;
use wait::Waited;

/// How long the first connection may take.
const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// How long the release may take: a dark network must not hold up the end of the program.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// Whatever can happen, in one queue.
enum News {
    Opened(Result<Election, Failure>),
    Guard(Event),
    Following(Option<Leader>),
    Signal(Caught),
    Report(u64, Report),
    WardenIsGone(u64),
}

/// The state of the program.
pub struct Run {
    args: RunArgs,
    id: Uuid,
    timing: Timing,
    news: Receiver<News>,
    sender: Sender<News>,
    terminal: Option<Terminal>,
    talk: Talk,
    wardens: u64,
    told_to_end: Option<Caught>,
    started: Duration,
}

pub fn run(args: RunArgs) -> Result<u8, Failure> {
    let signals = signals::block()
        .map_err(|error| Failure::new(ERROR, format!("signals cannot be blocked: {error}"), ""))?;
    descent::become_subreaper();
    let (sender, news) = channel();
    let caught = sender.clone();
    signals::listen(signals, move |signal| {
        caught.send(News::Signal(signal)).is_ok()
    });
    let run = Run {
        id: args.id.unwrap_or_else(Uuid::new_v4),
        timing: Timing::of(args.expire),
        talk: Talk::new(args.quiet),
        terminal: Terminal::find(),
        started: clock::now(),
        wardens: 0,
        told_to_end: None,
        args,
        news,
        sender,
    };
    run.run()
}

impl Run {
    fn run(mut self) -> Result<u8, Failure> {
        let election = match self.open()? {
            Some(election) => election,
            None => return Ok(self.ended_early("before the database answered")),
        };
        let guard = self.stand(&election)?;
        let events = guard.events();
        let sender = self.sender.clone();
        std::thread::spawn(move || {
            events
                .iter()
                .try_for_each(|event| sender.send(News::Guard(event)))
        });
        let code = self.lead(&election, &guard);
        self.talk.clear();
        let left = self.leave(guard);
        match (code, left) {
            // A command that succeeded, and a lease that stays for a while: not all is well.
            (Ok(0), Err(failure)) => Err(failure),
            (code, Err(failure)) => {
                failure.report();
                code
            }
            (code, Ok(())) => code,
        }
    }

    /// Campaigns and runs the command, again and again, to the exit code.
    fn lead(&mut self, election: &Election, guard: &LeaderGuard) -> Result<u8, Failure> {
        loop {
            let tenure = match self.wait(election, guard)? {
                Waited::Leads(tenure) => tenure,
                Waited::ToldToEnd => return Ok(self.ended_early("before it led")),
                Waited::Another(leads) => return self.not_elected(&leads),
                Waited::NoAnswer(why) => {
                    let what = format!("not leader of {:?}: {why}", self.args.ns);
                    let advice = "check that the database runs; the command was not run";
                    return Err(Failure::new(ERROR, what, advice));
                }
                Waited::Over => return Ok(LOST),
            };
            let elected = clock::now();
            self.talk.note(&format!(
                "leading {:?} under term {} as {}",
                self.args.ns,
                tenure.term(),
                self.id
            ));
            self.talk.clear();
            let finished = self.command(&tenure)?;
            if !finished.lost {
                return Ok(self.hold(&tenure, elected, finished.outcome));
            }
            if self.args.once || self.told_to_end.is_some() {
                let what = format!(
                    "leadership of {:?} was lost, and the command ended",
                    self.args.ns
                );
                Failure::new(LOST, what, "").report();
                return Ok(LOST);
            }
        }
    }

    /// The answer "no" to `--wait`, which is no error: cron would mail it from every machine but one.
    fn not_elected(&mut self, leads: &str) -> Result<u8, Failure> {
        if self.args.quiet {
            return Ok(NO);
        }
        let what = match self.args.wait {
            Some(wait) if !wait.is_zero() => {
                format!(
                    "not leader of {:?} within {}: {leads}",
                    self.args.ns,
                    human(wait)
                )
            }
            _ => format!("not leader of {:?}: {leads}", self.args.ns),
        };
        Err(Failure::new(NO, what, "the command was not run"))
    }

    /// Connects, unless told to end meanwhile.
    fn open(&mut self) -> Result<Option<Election>, Failure> {
        let (database, expire, sender) = (
            self.args.database.clone(),
            self.args.expire,
            self.sender.clone(),
        );
        std::thread::spawn(move || {
            sender.send(News::Opened(database.open(Tables::Create, Some(expire))))
        });
        let give_up = clock::now() + CONNECT_WITHIN;
        loop {
            match self.news.recv_timeout(give_up.saturating_sub(clock::now())) {
                Ok(News::Opened(opened)) => return opened.map(Some),
                Ok(News::Signal(signal)) if self.ends(signal) => return Ok(None),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {
                    let what = format!(
                        "the database did not answer within {}",
                        human(CONNECT_WITHIN)
                    );
                    return Err(Failure::new(
                        ERROR,
                        what,
                        "check that it runs and can be reached",
                    ));
                }
            }
        }
    }

    fn stand(&self, election: &Election) -> Result<LeaderGuard, Failure> {
        let builder = LeaderGuard::builder(election, self.id, &self.args.ns)
            .beat(self.timing.beat)
            .margin(self.timing.margin);
        let builder = if self.args.once {
            builder.once()
        } else {
            builder
        };
        Ok(builder.spawn()?)
    }

    /// Keeps the lease for as long as asked, though the command has ended; then gives the exit code.
    fn hold(&mut self, tenure: &Tenure, elected: Duration, outcome: Outcome) -> u8 {
        let until = elected + self.args.hold.unwrap_or_default();
        while self.told_to_end.is_none() && tenure.is_current() && clock::now() < until {
            let left = until.saturating_sub(clock::now());
            self.talk.passing(&format!(
                "the command has ended; holding the lease for another {}",
                human(left)
            ));
            if let Ok(News::Signal(signal)) =
                self.news.recv_timeout(left.min(Duration::from_secs(1)))
            {
                self.ends(signal);
            }
        }
        outcome.exit_code()
    }

    /// Whether a signal, with no command to pass it on to, ends this program.
    fn ends(&mut self, signal: Caught) -> bool {
        match signal {
            Caught::SIGCHLD => command::reap(),
            Caught::SIGTSTP => {
                if let Some(terminal) = &mut self.terminal {
                    terminal.stop_with(false);
                }
            }
            signal if signals::ENDING.contains(&signal) => self.told_to_end = Some(signal),
            _ => {}
        }
        self.told_to_end.is_some()
    }

    fn ended_early(&mut self, when: &str) -> u8 {
        let signal = self.told_to_end.unwrap_or(Caught::SIGTERM);
        self.talk.note(&format!(
            "ended by {} {when}; the command was not run",
            signal.as_str()
        ));
        Outcome::Signal(signal as i32).exit_code()
    }

    /// Gives the lease and the candidacy up.
    fn leave(&self, guard: LeaderGuard) -> Result<(), Failure> {
        let (sender, receiver) = channel();
        std::thread::spawn(move || sender.send(guard.resign()));
        match receiver.recv_timeout(LEAVE_WITHIN) {
            Ok(left) => Ok(left?),
            Err(_) => {
                let (ns, expire) = (&self.args.ns, human(self.args.expire));
                let what = format!(
                    "the database did not confirm within {} that {ns:?} was given up",
                    human(LEAVE_WITHIN)
                );
                let advice = format!(
                    "a lease that was held ends by itself, in {expire} at most; check that the database can be reached"
                );
                Err(Failure::new(ERROR, what, advice))
            }
        }
    }
}

/// Why a tenure ended, for people.
fn reason(cause: &Lost) -> String {
    match cause {
        Lost::Expired => "the lease ran out".to_owned(),
        Lost::Superseded { by, term } => format!("{by} leads under term {term}"),
        Lost::Resigned => "the candidate was unregistered".to_owned(),
        Lost::Unreachable => "the database does not answer".to_owned(),
        Lost::Suspended => "this process or the machine stood still".to_owned(),
        Lost::RowGone => "the row of the namespace is gone".to_owned(),
        other => format!("{other:?}"),
    }
}

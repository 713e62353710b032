//! One tenure: the command runs, by way of a warden, and ends before the lease does.

use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::mpsc::{RecvTimeoutError, Sender};
use std::time::Duration;

use leasehold::election::{Event, Lost, Tenure};
use nix::sys::signal::Signal as Caught;
use rustix::process::{Pid, Signal, WaitOptions};

use super::link::{self, Order, Outcome, Report};
use super::{News, Run, clock, descent, signals, warden};
use crate::program::failure::{ERROR, Failure};

/// How a command's tenure went.
pub struct Finished {
    pub outcome: Outcome,
    /// Leadership was lost before the command had ended.
    pub lost: bool,
}

/// A running warden, and what is known of its command.
struct Charge {
    link: UnixStream,
    number: u64,
    command: Option<Pid>,
    /// Until when the lease may be trusted, as the warden knows it; and when it kills.
    trusted_until: Duration,
    kill_at: Duration,
    lost: bool,
    outcome: Option<Outcome>,
    refused: Option<Failure>,
}

impl Run {
    /// Runs the command for as long as `tenure` lasts, and returns when nothing of it is left.
    pub fn command(&mut self, tenure: &Tenure) -> Result<Finished, Failure> {
        let mut charge = self.entrust(tenure)?;
        loop {
            match self.news.recv_timeout(self.timing.poll) {
                Ok(News::Report(number, report)) if number == charge.number => {
                    self.reported(&mut charge, report);
                }
                Ok(News::WardenIsGone(number)) if number == charge.number => break,
                Ok(News::Signal(signal)) => self.signalled(&charge, signal),
                Ok(News::Guard(event)) => self.heard(&mut charge, tenure, &event),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.extend(&mut charge, tenure);
            if clock::now() > self.timing.overdue_at(charge.kill_at) {
                sweep();
            }
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        // With its warden gone before its time, what the command started is left to this process.
        while sweep() > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        if let Some(refused) = charge.refused {
            return Err(refused);
        }
        Ok(Finished {
            outcome: charge
                .outcome
                .unwrap_or(Outcome::Signal(Signal::KILL.as_raw())),
            lost: charge.lost || !tenure.is_current(),
        })
    }

    /// Starts a warden for the command.
    fn entrust(&mut self, tenure: &Tenure) -> Result<Charge, Failure> {
        let cannot = |error: std::io::Error| {
            let what = format!("the command cannot be supervised: {error}");
            Failure::new(ERROR, what, "look for a limit of processes or open files")
        };
        let (ours, theirs) = UnixStream::pair().map_err(cannot)?;
        self.wardens += 1;
        let number = self.wardens;
        let trusted_until = clock::now() + tenure.remaining();
        let kill_at = self.timing.kill_at(trusted_until);
        link::send(
            &ours,
            &Order::Until {
                term: trusted_until,
                kill: kill_at,
            },
        );
        // No other thread of this program starts processes, so that only the warden gets it.
        rustix::io::fcntl_setfd(&theirs, rustix::io::FdFlags::empty())
            .map_err(|error| cannot(error.into()))?;
        let mut warden = Command::new(own_program());
        warden
            .arg0("leasehold")
            .args([warden::ENTRY, &theirs.as_raw_fd().to_string()])
            .args(&self.args.command)
            .env("LEASEHOLD_NS", &self.args.ns)
            .env("LEASEHOLD_TERM", tenure.term().to_string())
            .env("LEASEHOLD_CANDIDATE", self.id.to_string())
            // Out of reach of what the terminal sends to our group.
            .process_group(0);
        warden.spawn().map_err(cannot)?;
        drop(theirs);
        hear(
            ours.try_clone().map_err(cannot)?,
            number,
            self.sender.clone(),
        );
        Ok(Charge {
            link: ours,
            number,
            command: None,
            trusted_until,
            kill_at,
            lost: false,
            outcome: None,
            refused: None,
        })
    }

    /// Tells the warden of a renewal.
    fn extend(&self, charge: &mut Charge, tenure: &Tenure) {
        // The clock first: a pause between the two makes the time too early, not too late.
        let now = clock::now();
        let remaining = tenure.remaining();
        let until = now + remaining;
        let renewed = until > charge.trusted_until + Duration::from_millis(5);
        if !remaining.is_zero() && !charge.lost && renewed {
            charge.trusted_until = until;
            charge.kill_at = self.timing.kill_at(until);
            link::send(
                &charge.link,
                &Order::Until {
                    term: until,
                    kill: charge.kill_at,
                },
            );
        }
    }

    fn heard(&mut self, charge: &mut Charge, tenure: &Tenure, event: &Event) {
        match event {
            Event::Lost { term, cause } if *term == tenure.term() => {
                charge.lost = true;
                let why = super::reason(cause);
                // The row is somebody else's, or nobody's: there is no time left to be polite. In the other cases the
                // stored lease outlasts the trust in it, and the warden has its times.
                let in_time = matches!(cause, Lost::Unreachable | Lost::Suspended | Lost::Expired);
                if !in_time {
                    link::send(&charge.link, &Order::Within(Duration::ZERO));
                }
                let how = if in_time { "ending" } else { "killing" };
                self.talk.note(&format!(
                    "leadership lost (term {term}): {why}; {how} the command"
                ));
            }
            Event::Unreachable { error } => {
                self.talk.note(&format!(
                    "the database is not reached, the lease still holds: {error}"
                ));
            }
            _ => {}
        }
    }

    fn signalled(&mut self, charge: &Charge, signal: Caught) {
        match signal {
            Caught::SIGCHLD => return reap(),
            Caught::SIGCONT => {
                if let (Some(terminal), Some(command)) = (&mut self.terminal, charge.command) {
                    terminal.lend_again(command);
                }
            }
            signal if signals::ENDING.contains(&signal) => self.told_to_end = Some(signal),
            _ => {}
        }
        link::send(&charge.link, &Order::Signal(signal as i32));
        if let (true, Some(time)) = (signals::ENDING.contains(&signal), self.args.kill_after) {
            link::send(&charge.link, &Order::Within(time));
        }
    }

    fn reported(&mut self, charge: &mut Charge, report: Report) {
        match report {
            Report::Started(pid) => {
                charge.command = Pid::from_raw(pid);
                if let (Some(terminal), Some(command)) = (&mut self.terminal, charge.command) {
                    terminal.lend_at_start(command);
                }
            }
            Report::Refused(code, why) => {
                let name = self.args.command[0].to_string_lossy().into_owned();
                let what = format!("{name:?} cannot be started: {why}");
                charge.refused = Some(Failure::new(
                    code,
                    what,
                    "check its name, path and permissions",
                ));
            }
            Report::Stopped(signal) => self.stopped(charge, signal),
            Report::Survives(pid) => {
                self.talk.note(&format!(
                    "process {pid} outlives SIGKILL; it may run on after the lease has ended"
                ));
            }
            Report::Ended(outcome) => charge.outcome = Some(outcome),
        }
    }

    /// The command was stopped. If the terminal did it, this process stops too, so that the shell has the word.
    fn stopped(&mut self, charge: &Charge, signal: i32) {
        let by_terminal = [Signal::TSTP, Signal::TTIN, Signal::TTOU]
            .map(Signal::as_raw)
            .contains(&signal);
        let (true, Some(terminal), Some(command)) =
            (by_terminal, &mut self.terminal, charge.command)
        else {
            return;
        };
        let wants_it = signal != Signal::TSTP.as_raw();
        let lent = wants_it && terminal.lend(command);
        if !lent && terminal.stop_with(wants_it) {
            return;
        }
        if wants_it && !lent {
            // Continued, it would ask again at once, and so for ever.
            self.talk.note(
                "the command is stopped: it needs the terminal, which belongs to another process group; \
                 give it a terminal of its own, as with `script -c`, or no input, as with `</dev/null`",
            );
            return;
        }
        link::send(&charge.link, &Order::Signal(Signal::CONT.as_raw()));
    }
}

fn hear(link: UnixStream, number: u64, news: Sender<News>) {
    std::thread::spawn(move || {
        link::listen(link, |report| {
            let _ = news.send(News::Report(number, report));
        });
        let _ = news.send(News::WardenIsGone(number));
    });
}

/// This program, even if its file was replaced since it was started.
fn own_program() -> std::path::PathBuf {
    let running = std::path::PathBuf::from("/proc/self/exe");
    match running.exists() {
        true => running,
        false => std::env::current_exe().unwrap_or_else(|_| "leasehold".into()),
    }
}

/// Sends SIGKILL to every process below this one, and says how many there were.
fn sweep() -> usize {
    reap();
    let live = descent::live_below(rustix::process::getpid());
    live.iter()
        .for_each(|process| descent::signal(process, Signal::KILL));
    live.len()
}

/// Waits for every child that has ended: the warden, and as process 1 all orphans of the container.
pub fn reap() {
    while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
}

//! The warden: a process between `run` and its command that ends the command in time, whatever happens to `run`.
//!
//! `run` tells it at each renewal until when the lease may be trusted. When that is not renewed, because the database is dark, or
//! `run` itself was stopped, it ends everything below it by its own clock; when `run` is gone, it does so at once. `run` in turn
//! ends everything when the warden is gone or late.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use nix::sys::signal::Signal as Caught;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_process, kill_process_group,
    waitid, waitpid,
};

use super::link::{self, Order, Outcome, Report};
use super::{clock, descent, signals};

/// The first argument that makes this program a warden.
pub const ENTRY: &str = "__warden";

/// What a command leaves behind has so long from SIGTERM to SIGKILL.
const LEFTOVERS: Duration = Duration::from_millis(500);
/// A process that lives so long after SIGKILL is reported.
const STUCK: Duration = Duration::from_secs(2);
/// The longest pause: a sleeping machine does not wake a thread in time, and the clock must be looked at.
const LONGEST_PAUSE: Duration = Duration::from_millis(200);
const SHORT_PAUSE: Duration = Duration::from_millis(5);

enum News {
    Order(Order),
    Signal(Caught),
    RunIsGone,
}

/// Plays the warden, if these are the arguments of one.
pub fn entered(arguments: &[OsString]) -> Option<ExitCode> {
    let [_, entry, socket, command, rest @ ..] = arguments else {
        return None;
    };
    if entry != ENTRY {
        return None;
    }
    let socket: RawFd = socket.to_str()?.parse().ok()?;
    if socket <= 2 || !is_a_socket(socket) {
        return None;
    }
    let mut command = Command::new(command);
    command.args(rest);
    Some(play(adopt(socket), command))
}

/// Whether `run` can have left it: somebody may have typed the number. Where there is no /proc it is believed.
fn is_a_socket(fd: RawFd) -> bool {
    let open = std::path::Path::new("/proc/self/fd");
    match std::fs::read_link(open.join(fd.to_string())) {
        Ok(target) => target
            .as_os_str()
            .as_encoded_bytes()
            .starts_with(b"socket:"),
        Err(_) => !open.exists(),
    }
}

/// Makes the socket that `run` left open for this process ours alone.
#[allow(unsafe_code)]
fn adopt(socket: RawFd) -> UnixStream {
    // SAFETY: the number comes from `run`, which opened the socket for this process and told nobody else of it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    socket.into()
}

fn play(link: UnixStream, command: Command) -> ExitCode {
    let Ok(signals) = signals::block() else {
        link::send(
            &link,
            &Report::Refused(126, "signals cannot be blocked".to_owned()),
        );
        return ExitCode::FAILURE;
    };
    descent::become_subreaper();
    let (sender, news) = channel();
    let caught = sender.clone();
    signals::listen(signals, move |signal| {
        caught.send(News::Signal(signal)).is_ok()
    });
    if let Ok(link) = link.try_clone() {
        std::thread::spawn(move || hear(link, &sender));
    }
    let Ok(News::Order(Order::Until { term, kill })) = news.recv() else {
        return ExitCode::FAILURE;
    };
    match start(command) {
        Ok(command) => {
            link::send(&link, &Report::Started(command.as_raw_nonzero().get()));
            let warden = Warden {
                command,
                link,
                term_at: term,
                kill_at: kill,
                asked: false,
                is_stopped: false,
                ended: None,
                killing_since: None,
                reported: HashSet::new(),
            };
            warden.watch(&news);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let code = if error.kind() == std::io::ErrorKind::NotFound {
                127
            } else {
                126
            };
            link::send(&link, &Report::Refused(code, error.to_string()));
            ExitCode::FAILURE
        }
    }
}

fn hear(link: UnixStream, news: &Sender<News>) {
    link::listen(link, |order| {
        let _ = news.send(News::Order(order));
    });
    let _ = news.send(News::RunIsGone);
}

/// Starts the command in a group of its own. By the hand of the kernel it ends with this process, if that is killed.
#[allow(unsafe_code)]
fn start(mut command: Command) -> std::io::Result<Pid> {
    command.process_group(0);
    let warden = getpid();
    let blocked = signals::blocked();
    // SAFETY: a few system calls and nothing else, between fork and exec: no lock is taken and no memory allocated.
    unsafe {
        command.pre_exec(move || {
            die_with(warden)?;
            Ok(blocked.thread_unblock()?)
        });
    }
    // Waited for by its id.
    Ok(Pid::from_child(&command.spawn()?))
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn die_with(parent: Pid) -> std::io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // It may have been killed before the line above.
    match rustix::process::getppid() == Some(parent) {
        true => Ok(()),
        false => Err(rustix::io::Errno::SRCH.into()),
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn die_with(_parent: Pid) -> std::io::Result<()> {
    Ok(())
}

fn is_in_group(process: Pid, group: Pid) -> bool {
    let id = |pid: Pid| nix::unistd::Pid::from_raw(pid.as_raw_nonzero().get());
    nix::unistd::getpgid(Some(id(process))) == Ok(id(group))
}

struct Warden {
    /// The command, and its process group. It is waited for last of all, so that its id stays its own.
    command: Pid,
    link: UnixStream,
    term_at: Duration,
    kill_at: Duration,
    /// SIGTERM was sent because the time had come.
    asked: bool,
    is_stopped: bool,
    ended: Option<Outcome>,
    killing_since: Option<Duration>,
    reported: HashSet<i32>,
}

impl Warden {
    fn watch(mut self, news: &Receiver<News>) {
        loop {
            self.look_at_command();
            let now = clock::now();
            if now >= self.kill_at {
                self.kill_all(now);
            } else if now >= self.term_at && !self.asked {
                self.ask_all();
            }
            if let Some(outcome) = self.ended
                && self.nothing_is_left()
            {
                link::send(&self.link, &Report::Ended(outcome));
                let _ = waitpid(Some(self.command), WaitOptions::empty());
                return;
            }
            if let Ok(news) = news.recv_timeout(self.pause(now)) {
                self.take(news);
            }
        }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Order(Order::Until { term, kill }) if !self.asked && self.ended.is_none() => {
                (self.term_at, self.kill_at) = (term, kill);
            }
            News::Order(Order::Until { .. }) => {}
            News::Order(Order::Signal(signal)) => self.pass_on(signal),
            News::Order(Order::Within(time)) => {
                self.asked = true;
                self.kill_at = self.kill_at.min(clock::now() + time);
            }
            News::RunIsGone => {
                self.asked = true;
                self.kill_at = Duration::ZERO;
            }
            News::Signal(Caught::SIGCHLD) => reap(self.command),
            // Whoever signals a whole control group means the command, which got it too.
            News::Signal(_) => {}
        }
    }

    fn look_at_command(&mut self) {
        let look = |options| {
            let options = options | WaitIdOptions::NOHANG;
            waitid(WaitId::Pid(self.command), options).ok().flatten()
        };
        if let Some(change) = look(WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED) {
            let stopped_by = change.stopping_signal();
            self.is_stopped = stopped_by.is_some();
            if let Some(signal) = stopped_by {
                link::send(&self.link, &Report::Stopped(signal));
            }
        }
        if self.ended.is_some() {
            return;
        }
        let ended = look(WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
        self.ended = ended.and_then(|status| {
            let killed = status.terminating_signal().map(Outcome::Signal);
            status.exit_status().map(Outcome::Code).or(killed)
        });
        if self.ended.is_some() {
            // What it has left behind has no reason to stay.
            self.ask_all();
            self.kill_at = self.kill_at.min(clock::now() + LEFTOVERS);
        }
    }

    fn pass_on(&self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        // Not waited for yet, so the id is still the command's.
        let _ = match signals::is_for_the_group(signal.as_raw()) {
            true => kill_process_group(self.command, signal),
            false => kill_process(self.command, signal),
        };
        // Who is stopped could not hear it.
        if self.is_stopped && signals::asks_to_end(signal.as_raw()) {
            let _ = kill_process_group(self.command, Signal::CONT);
        }
    }

    /// Asks everything to end, and continues what is stopped.
    fn ask_all(&mut self) {
        self.asked = true;
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(self.command, signal);
            for process in descent::live_below(getpid()) {
                if !is_in_group(process.pid, self.command) {
                    descent::signal(&process, signal);
                }
            }
        }
    }

    fn kill_all(&mut self, now: Duration) {
        let since = *self.killing_since.get_or_insert(now);
        let _ = kill_process_group(self.command, Signal::KILL);
        for process in descent::live_below(getpid()) {
            descent::signal(&process, Signal::KILL);
            let pid = process.pid.as_raw_nonzero().get();
            if now - since > STUCK && self.reported.insert(pid) {
                link::send(&self.link, &Report::Survives(pid));
            }
        }
        reap(self.command);
    }

    fn nothing_is_left(&self) -> bool {
        reap(self.command);
        descent::live_below(getpid()).is_empty()
    }

    fn pause(&self, now: Duration) -> Duration {
        if self.ended.is_some() || now >= self.kill_at {
            return SHORT_PAUSE;
        }
        let next = if self.asked {
            self.kill_at
        } else {
            self.term_at
        };
        next.saturating_sub(now).min(LONGEST_PAUSE)
    }
}

/// Waits for the orphans that have ended, but not for the command.
fn reap(command: Pid) {
    for orphan in descent::zombies(Some(command)) {
        let _ = waitpid(Some(orphan), WaitOptions::NOHANG);
    }
}

//! Signals arrive as messages: they are blocked in every thread, and one thread waits for them.
//!
//! No handler is installed. A signal that was ignored when the program started (`nohup`) stays ignored, here and in the command:
//! it is not blocked, for the kernel keeps a blocked signal even for who ignores it. And as process 1, which the kernel spares all
//! signals without a handler, blocked ones arrive all the same.

use nix::sys::signal::{SigHandler, SigSet, Signal};

/// Those that ask the command to end. They go to its whole group.
pub const ENDING: [Signal; 4] = [
    Signal::SIGTERM,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGHUP,
];

/// Those that mean something to the command alone.
const PRIVATE: [Signal; 4] = [
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGALRM,
    Signal::SIGWINCH,
];

const JOB_CONTROL: [Signal; 2] = [Signal::SIGTSTP, Signal::SIGCONT];

/// Whether a signal is for every process of the command's group.
pub fn is_for_the_group(signal: i32) -> bool {
    !PRIVATE.iter().any(|private| *private as i32 == signal)
}

pub fn asks_to_end(signal: i32) -> bool {
    ENDING.iter().any(|ending| *ending as i32 == signal)
}

/// Blocks them, and gives those to listen for. To be called before any other thread is started, which then blocks the same.
pub fn block() -> Result<SigSet, nix::Error> {
    hear_of_children()?;
    let ignored = ignored();
    let mut heard = SigSet::empty();
    for signal in blocked().iter().filter(|signal| !is_in(ignored, *signal)) {
        heard.add(signal);
    }
    heard.thread_block()?;
    heard.remove(Signal::SIGTTOU);
    Ok(heard)
}

/// Who ignores SIGCHLD is not told how a child has ended. A parent that did so has passed it on to this process.
#[allow(unsafe_code)]
fn hear_of_children() -> Result<(), nix::Error> {
    // SAFETY: no handler is installed, so that no code of ours can run at a bad moment.
    unsafe { nix::sys::signal::signal(Signal::SIGCHLD, SigHandler::SigDfl) }.map(drop)
}

/// The signals that this process ignores, one bit for each. Where there is no /proc none is known.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .map(str::trim);
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok())
        .unwrap_or_default()
}

fn is_in(mask: u64, signal: Signal) -> bool {
    mask >> (signal as u32 - 1) & 1 == 1
}

/// What a command must not inherit: it would not hear that it shall end.
pub fn blocked() -> SigSet {
    let mut blocked = SigSet::empty();
    for signal in ENDING.into_iter().chain(PRIVATE).chain(JOB_CONTROL) {
        blocked.add(signal);
    }
    blocked.add(Signal::SIGCHLD);
    // Not listened for: the one who hands the terminal over from the background must not be stopped for it.
    blocked.add(Signal::SIGTTOU);
    blocked
}

/// Hands every signal to `hear`, which says whether to go on.
pub fn listen(signals: SigSet, mut hear: impl FnMut(Signal) -> bool + Send + 'static) {
    std::thread::spawn(move || {
        while let Ok(signal) = signals.wait() {
            if !hear(signal) {
                return;
            }
        }
    });
}

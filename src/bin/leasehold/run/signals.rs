//! Signals arrive as messages: they are blocked in every thread, and one thread waits for them.
//!
//! No handler is installed. A signal that was ignored when the program started (`nohup`) stays ignored, here and in the command;
//! and as process 1, which the kernel spares all signals without a handler, blocked ones arrive all the same.

use nix::sys::signal::{SigSet, Signal};

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

/// Blocks them, and gives those to listen for. To be called before any other thread is started, which then blocks the same.
pub fn block() -> Result<SigSet, nix::Error> {
    let blocked = blocked();
    blocked.thread_block()?;
    let mut heard = blocked;
    heard.remove(Signal::SIGTTOU);
    Ok(heard)
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

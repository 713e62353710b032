//! The terminal belongs to one process group at a time: it is lent to the command, and taken back.

use std::fs::File;
use std::io::IsTerminal;

use nix::unistd::{getpgid, getpgrp, getppid, getsid};
use rustix::process::{Pid, Signal};
use rustix::termios::{tcgetpgrp, tcsetpgrp};

pub struct Terminal {
    tty: File,
    /// `None` for a group that was made outside of this PID namespace (`nsenter`, `unshare --pid`). Ids of there read as 0
    /// here, so nobody can tell whether it has the terminal, and nobody could give the terminal back to it.
    own: Option<Pid>,
    lent: bool,
    /// To be lent when this process is continued.
    lend_later: bool,
}

impl Terminal {
    /// The controlling terminal, if there is one.
    pub fn find() -> Option<Terminal> {
        let tty = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        Some(Terminal {
            tty,
            own: Pid::from_raw(getpgrp().as_raw()),
            lent: false,
            lend_later: false,
        })
    }

    /// Lends it to a command that begins, unless another program of the same pipeline may want it: such as the pager in
    /// `leasehold run … | less`. Whoever needs it all the same is stopped by the kernel, and gets it then.
    pub fn lend_at_start(&mut self, group: Pid) {
        if std::io::stdin().is_terminal() && std::io::stdout().is_terminal() {
            self.lend(group);
        }
    }

    /// Lends it to `group`, if it is ours to lend.
    pub fn lend(&mut self, group: Pid) -> bool {
        let ours = self.own.is_some() && tcgetpgrp(&self.tty).ok() == self.own;
        if ours && tcsetpgrp(&self.tty, group).is_ok() {
            self.lent = true;
        }
        self.lent
    }

    pub fn take_back(&mut self) {
        if std::mem::take(&mut self.lent)
            && let Some(own) = self.own
        {
            let _ = tcsetpgrp(&self.tty, own);
        }
    }

    /// Stops this process, as the command was stopped, so that the shell can go on, and returns when the shell continues it.
    /// `false` if there is nobody who would: a terminal without a shell, process 1.
    pub fn stop_with(&mut self, wants_it: bool) -> bool {
        if !has_a_shell() {
            return false;
        }
        self.lend_later |= self.lent || wants_it;
        self.take_back();
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
        true
    }

    /// Continued: the command gets what it had.
    pub fn lend_again(&mut self, group: Pid) {
        if std::mem::take(&mut self.lend_later) {
            self.lend(group);
        }
    }
}

/// Whether the parent is of the same session and another group, which is how shells hold their jobs.
fn has_a_shell() -> bool {
    let parent = getppid();
    let group = getpgid(Some(parent));
    let session = getsid(Some(parent));
    // 0 is the process that asks, and stands for a parent outside of this PID namespace.
    parent.as_raw() != 0
        && group.is_ok_and(|group| group != getpgrp())
        && session.is_ok()
        && session == getsid(None)
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

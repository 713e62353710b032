//! What `run` says while it waits and when something happens: on stderr, which it shares with its command.

use std::io::{IsTerminal, Write};

use crate::program::output::{DIM, say};

pub struct Talk {
    quiet: bool,
    terminal: bool,
    /// A line stands there that the next one replaces.
    passing: bool,
}

impl Talk {
    pub fn new(quiet: bool) -> Talk {
        Talk {
            quiet,
            terminal: std::io::stderr().is_terminal(),
            passing: false,
        }
    }

    /// Whether passing lines are shown at all.
    pub fn shows_progress(&self) -> bool {
        self.terminal && !self.quiet
    }

    /// A line that the next one replaces; for terminals alone.
    pub fn passing(&mut self, line: &str) {
        if self.shows_progress() {
            self.passing = true;
            let mut stderr = anstream::stderr().lock();
            let _ = write!(stderr, "\r").and_then(|()| write!(stderr, "{DIM}{line}{DIM:#}"));
            drop(stderr);
            self.control("\x1b[K");
        }
    }

    /// A line that stays.
    pub fn note(&mut self, line: &str) {
        if !self.quiet {
            self.clear();
            say(&format!("{DIM}leasehold:{DIM:#} {line}"));
        }
    }

    /// Leaves the terminal to somebody else.
    pub fn clear(&mut self) {
        if std::mem::take(&mut self.passing) {
            self.control("\r\x1b[K");
        }
    }

    /// Not by way of the stream that strips colours: a terminal without colours moves its cursor all the same.
    fn control(&self, code: &str) {
        let mut stderr = std::io::stderr().lock();
        let _ = stderr
            .write_all(code.as_bytes())
            .and_then(|()| stderr.flush());
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.clear();
    }
}

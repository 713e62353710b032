//! A terminal, with the program in front of it, and the test in place of the person.

#![cfg(feature = "sqlite")]

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::thread;

use rustix::pty::{OpenptFlags, grantpt, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Termios, Winsize, tcgetattr, tcgetpgrp, tcsetwinsize};

use crate::running::{DEFAULT_SIGNALS, PATIENCE};
use crate::support::becomes_true;
use crate::support::process::{self, Pid};

pub const CTRL_C: &str = "\x03";
pub const CTRL_D: &str = "\x04";
pub const CTRL_Z: &str = "\x1a";

/// A terminal of 80 by 24, and what was shown on it. Dropped: the program is killed, and the terminal hangs up.
pub struct Pty {
    master: File,
    child: Child,
    seen: Arc<Mutex<String>>,
    reader: thread::JoinHandle<()>,
    /// Up to here it was looked at.
    read: usize,
}

impl Pty {
    /// Runs the command as the leader of the terminal's session, with the terminal as its stdin, stdout and stderr.
    #[track_caller]
    pub fn start(command: &Command) -> Pty {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = openpt(flags).expect("a terminal");
        grantpt(&master).expect("ours");
        unlockpt(&master).expect("unlocked");
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&master, size).expect("a size");
        let other_side = || {
            let fd = ioctl_tiocgptpeer(&master, flags).expect("its other side");
            File::from(fd)
        };
        // Both replace themselves by what they start: the process stays the same.
        let mut setsid = Command::new("env");
        setsid
            .args([DEFAULT_SIGNALS, "setsid", "--ctty"])
            .arg(command.get_program())
            .args(command.get_args())
            .env("TERM", "xterm")
            .env_remove("NO_COLOR")
            .env_remove("CLICOLOR")
            .env_remove("CLICOLOR_FORCE");
        for (name, value) in command.get_envs() {
            match value {
                Some(value) => setsid.env(name, value),
                None => setsid.env_remove(name),
            };
        }
        let streams = setsid.stdin(other_side()).stdout(other_side());
        let child = streams.stderr(other_side()).spawn().expect("setsid starts");
        // Our copies of the other side would keep the terminal open.
        drop(setsid);
        let master = File::from(master);
        let seen = Arc::new(Mutex::new(String::new()));
        let (mut screen, text) = (master.try_clone().expect("a copy"), seen.clone());
        let reader = thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let shown = String::from_utf8_lossy(&bytes[..count]).into_owned();
                text.lock().expect("no panic").push_str(&shown);
            }
        });
        Pty {
            master,
            child,
            seen,
            reader,
            read: 0,
        }
    }

    pub fn pid(&self) -> Pid {
        process::pid_of(&self.child)
    }

    pub fn types(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("typed");
    }

    /// Waits until this is shown, after what was waited for before; gives the text up to it.
    #[track_caller]
    pub fn shows(&mut self, what: &str) -> String {
        let mut found = None;
        becomes_true(PATIENCE, || {
            found = self.text()[self.read..].find(what);
            found.is_some()
        });
        let text = self.text();
        let at = found.unwrap_or_else(|| panic!("{what:?} is not shown: {:?}", &text[self.read..]));
        let passed = text[self.read..self.read + at].to_owned();
        self.read += at + what.len();
        passed
    }

    /// All that was shown from the beginning.
    pub fn text(&self) -> String {
        self.seen.lock().expect("no panic").clone()
    }

    /// The process group that the keys go to.
    pub fn foreground(&self) -> Option<Pid> {
        tcgetpgrp(&self.master).ok()
    }

    pub fn settings(&self) -> Termios {
        tcgetattr(&self.master).expect("its settings")
    }

    /// How the program ended, and all that was shown. Panics if it runs on.
    #[track_caller]
    pub fn end(&mut self) -> (ExitStatus, String) {
        let mut status = None;
        becomes_true(PATIENCE, || {
            status = self.child.try_wait().expect("our own child");
            status.is_some() && self.reader.is_finished()
        });
        let text = self.text();
        let status = status.unwrap_or_else(|| panic!("it runs on: {text:?}"));
        assert!(self.reader.is_finished(), "the terminal is still in use");
        (status, text)
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

//! Other processes, without other binaries: a test plays a part when the test binary is run again for it.
//!
//! ```ignore
//! #[test]
//! fn role_candidate() {
//!     let Some(parent) = child::role("role_candidate") else { return };
//!     parent.say("ready");
//! }
//!
//! #[test]
//! fn two_processes_agree() {
//!     let other = Role::spawn(child::in_child("role_candidate").env("URL", url));
//!     assert_eq!(other.line(Duration::from_secs(5)), "ready");
//! }
//! ```

use std::fmt::Display;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::Duration;
use std::{env, thread};

use super::becomes_true;
use super::process::{self, Pid};

const ROLE: &str = "LEASEHOLD_TEST_ROLE";
const SUPERVISED: &str = "LEASEHOLD_TEST_SUPERVISED";
// What the test framework prints on the same stream, partly without line ends, is told apart by this.
const MARK: &str = "@@ ";
const STARTED: &str = "started";

/// This test binary again, for the test named `role` alone (with its module, as `cargo test -- --list` shows it).
pub fn in_child(role: &str) -> Command {
    let mut command = Command::new(env::current_exe().expect("the path of this test binary"));
    command
        .args([role, "--exact", "--nocapture", "--test-threads=1"])
        .env(ROLE, role);
    command
}

/// In a process made by [`in_child`] for this role: the way to the process that made it. Otherwise nothing.
pub fn role(name: &str) -> Option<Parent> {
    if env::var(ROLE).as_deref() != Ok(name) {
        return None;
    }
    let (sender, lines) = mpsc::channel();
    if env::var_os(SUPERVISED).is_some() {
        thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
            // The parent is gone, however it went; nobody else would end us.
            std::process::exit(70);
        });
    }
    let parent = Parent {
        lines: Mutex::new(lines),
    };
    parent.say(STARTED);
    Some(parent)
}

/// The parent, seen from a role.
pub struct Parent {
    lines: Mutex<Receiver<String>>,
}

impl Parent {
    /// Sends one line to the parent.
    pub fn say(&self, line: impl Display) {
        let mut stdout = std::io::stdout().lock();
        // A parent that no longer listens is on its way to end us.
        let _ = writeln!(stdout, "\n{MARK}{line}").and_then(|()| stdout.flush());
    }

    /// The next line from [`Role::tell`].
    pub fn hear(&self) -> String {
        let lines = self.lines.lock().expect("no panic while waiting");
        lines.recv().expect("made by Role::spawn")
    }

    /// Plays on until the parent ends this process.
    pub fn wait_for_the_end(&self) -> ! {
        loop {
            thread::park();
        }
    }
}

/// A running role, seen from the parent. Dropped: killed.
pub struct Role {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Role {
    /// Runs a command of [`in_child`] and returns when it plays.
    #[track_caller]
    pub fn spawn(command: &mut Command) -> Role {
        let mut child = command
            .env(SUPERVISED, "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stdin = child.stdin.take().expect("piped");
        let stdout = child.stdout.take().expect("piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if let Some(said) = line.strip_prefix(MARK) {
                    let _ = sender.send(said.to_owned());
                }
            }
        });
        let role = Role {
            child,
            stdin,
            lines,
        };
        let first = role.lines.recv_timeout(Duration::from_secs(30));
        assert!(
            first.is_ok_and(|line| line == STARTED),
            "no test plays this role: {command:?}"
        );
        role
    }

    /// The next line of the role. Panics when it is silent that long, or has ended.
    #[track_caller]
    pub fn line(&self, within: Duration) -> String {
        match self.lines.recv_timeout(within) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => panic!("the role said nothing for {within:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("the role ended without a word"),
        }
    }

    /// The next line, if there is one in that time.
    pub fn try_line(&self, within: Duration) -> Option<String> {
        self.lines.recv_timeout(within).ok()
    }

    /// All that was said and not read yet, to the end of the role.
    pub fn rest(&self) -> Vec<String> {
        self.lines.iter().collect()
    }

    pub fn tell(&mut self, line: impl Display) {
        writeln!(self.stdin, "{line}").expect("the role listens");
    }

    pub fn pid(&self) -> Pid {
        process::pid_of(&self.child)
    }

    /// SIGSTOP, and returns when the process has stopped.
    pub fn pause(&self) {
        process::pause(self.pid());
        let stopped = becomes_true(Duration::from_secs(5), || process::is_paused(self.pid()));
        assert!(stopped, "the role does not stop");
    }

    pub fn resume(&self) {
        process::resume(self.pid());
    }

    /// kill -9, and returns when the process has ended.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// How the role ended. Panics when it plays on.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        let mut status = None;
        becomes_true(within, || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        status.unwrap_or_else(|| panic!("the role plays on after {within:?}"))
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill();
    }
}

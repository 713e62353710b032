//! The program as a child of the test, and the processes that its command has become.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use crate::support::process::{self, Pid, Signal};
use crate::support::{becomes_true, wait_until};

/// Longer than anything that is waited for should take, even on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Tests that run in the background of a script ignore some of these, and so would what they start.
pub const DEFAULT_SIGNALS: &str = "--default-signal=HUP,INT,QUIT";

/// The program, on this database.
pub fn leasehold(url: &str) -> Command {
    let mut command = Command::new("env");
    command
        .args([DEFAULT_SIGNALS, env!("CARGO_BIN_EXE_leasehold")])
        .env("LEASEHOLD_DATABASE_URL", url)
        .env_remove("LEASEHOLD_NS")
        .env_remove("LEASEHOLD_CANDIDATE")
        .stdin(Stdio::null());
    command
}

/// Says what this machine did not let a test do, past the test framework, which keeps what tests print to itself.
pub fn say_plainly(text: &str) {
    let _ = writeln!(std::io::stderr(), "NOT TESTED: {text}");
}

/// What starts a command as process 1 of a new namespace of processes, where this machine lets us.
pub fn as_process_1() -> Option<Vec<&'static str>> {
    let alone = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let as_root = [&["unshare"][..], &alone].concat();
    let as_user = [&["unshare", "--user", "--map-root-user"][..], &alone].concat();
    let works = |words: &Vec<&str>| {
        let mut command = Command::new(words[0]);
        let output = command.args(&words[1..]).arg("true").output();
        output.is_ok_and(|output| output.status.success())
    };
    [as_root, as_user].into_iter().find(works)
}

/// Runs to the end: exit code, stdout, stderr.
#[track_caller]
pub fn said(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program runs");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().unwrap_or(-1), text(stdout), text(stderr))
}

/// The JSON that a call prints.
#[track_caller]
pub fn json(command: &mut Command) -> serde_json::Value {
    let (_, out, err) = said(command);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}{err}"))
}

/// A running program. Dropped: killed, and what its command started with it.
pub struct Running {
    child: Child,
    lines: Receiver<String>,
    errors: Option<thread::JoinHandle<String>>,
}

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.spawn().expect("the program starts");
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let mut stderr = child.stderr.take().expect("piped");
        let errors = thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            text
        });
        Running {
            child,
            lines,
            errors: Some(errors),
        }
    }

    pub fn pid(&self) -> Pid {
        process::pid_of(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        process::send(self.pid(), signal);
    }

    /// The next line of the command.
    #[track_caller]
    pub fn line(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .expect("a line of the command")
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("our own child").is_some()
    }

    /// How it ended, and what it said on stderr. Panics if it runs on.
    #[track_caller]
    pub fn end(&mut self, within: Duration) -> (ExitStatus, String) {
        let mut status = None;
        becomes_true(within, || {
            status = self.child.try_wait().expect("our own child");
            status.is_some()
        });
        let status = status.unwrap_or_else(|| panic!("it runs on after {within:?}"));
        (
            status,
            self.errors
                .take()
                .expect("asked once")
                .join()
                .expect("read"),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Names the processes of one command: each of them is `sleep` for a time that no other test uses.
pub struct Mark(String);

impl Mark {
    pub fn new() -> Mark {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Mark(format!("1000.{}{number:04}", std::process::id()))
    }

    /// The shell script, with `sleep` as long as the mark says in place of `SLEEP`.
    pub fn script(&self, script: &str) -> String {
        script.replace("SLEEP", &format!("sleep {}", self.0))
    }

    /// How many live processes carry it.
    pub fn alive(&self) -> usize {
        self.pids().len()
    }

    /// One of them.
    pub fn pid(&self) -> Option<Pid> {
        self.pids().first().copied()
    }

    fn pids(&self) -> Vec<Pid> {
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let pids = entries.filter_map(|entry| process::parse(entry.file_name().to_str()?));
        pids.filter(|pid| self.is_on(*pid)).collect()
    }

    fn is_on(&self, pid: Pid) -> bool {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = line.split(|byte| *byte == 0);
        let sleeps = words.next().is_some_and(|name| name.ends_with(b"sleep"));
        sleeps && words.next() == Some(self.0.as_bytes()) && process::alive(pid)
    }

    #[track_caller]
    pub fn becomes(&self, count: usize) {
        wait_until(
            PATIENCE,
            &format!("{count} processes of the command"),
            || self.alive() == count,
        );
    }
}

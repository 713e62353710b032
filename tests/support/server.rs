//! A database server of our own: what PostgreSQL and MariaDB have in common.

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{env, fs, thread};

use super::process::{self, Pid};
use super::{becomes_true, free_port};

const PATIENCE: Duration = Duration::from_secs(120);

/// How a server is set up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options<'a> {
    /// Whether commits reach the disk. Without it they still survive the death of the server, not that of the machine.
    pub fsync: bool,
    /// Further lines of its configuration file.
    pub extra: &'a [&'a str],
}

/// What differs between the kinds of server.
pub struct Kind {
    pub name: &'static str,
    /// The account it runs under when the tests run as root, which it refuses.
    pub user: &'static str,
    /// The signal that ends it cleanly, and the one that ends it at once.
    pub stop: &'static str,
    pub abort: &'static str,
    /// Whether the process answers clients, judged by what it leaves in its directory.
    pub ready: fn(&Path, Pid) -> bool,
}

/// One server process that can be stopped and started again, with its directory and its port.
pub struct Server {
    kind: Kind,
    account: Account,
    dir: PathBuf,
    port: AtomicU16,
    databases: AtomicUsize,
    supervisor: Mutex<Supervisor>,
}

impl Server {
    /// Makes the directory and the process that watches over both; `command` tells what that will run, given the
    /// directory.
    pub fn new(kind: Kind, command: impl FnOnce(&Path) -> Vec<OsString>) -> Server {
        let account = Account::of(kind.user);
        let dir = account.directory();
        let supervisor = Supervisor::spawn(&account, &dir, kind.abort, command(&dir));
        Server {
            kind,
            account,
            dir,
            port: AtomicU16::new(0),
            databases: AtomicUsize::new(0),
            supervisor: Mutex::new(supervisor),
        }
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn port(&self) -> u16 {
        self.port.load(Ordering::Relaxed)
    }

    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port()))
    }

    pub fn next_database(&self) -> String {
        let number = self.databases.fetch_add(1, Ordering::Relaxed) + 1;
        format!("fresh_{number}")
    }

    /// A command under the server's account, and with a temporary directory of its own: a MariaDB that starts removes
    /// the temporary tables of all others from a shared one.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.account.command(program);
        command.env("TMPDIR", &self.dir);
        command
    }

    /// A file the server can read.
    pub fn write(&self, path: &Path, text: &str) {
        fs::write(path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        self.account.own(path);
    }

    /// Starts the server for the first time, on a port of its own; `configure` writes that into its configuration.
    pub fn start_on_free_port(&self, configure: impl Fn(u16)) {
        for _ in 0..5 {
            let port = free_port();
            self.port.store(port, Ordering::Relaxed);
            configure(port);
            match self.try_start() {
                Ok(()) => return,
                // Another test binary was quicker.
                Err(log) if log.to_lowercase().contains("address already in use") => {}
                Err(log) => panic!("{} does not start:\n{log}", self.kind.name),
            }
        }
        panic!("{} found no free port in five attempts", self.kind.name);
    }

    /// Starts the stopped server on its old port and returns when it answers.
    pub fn start(&self) {
        if let Err(log) = self.try_start() {
            panic!("{} does not start again:\n{log}", self.kind.name);
        }
    }

    fn try_start(&self) -> Result<(), String> {
        let mut supervisor = self.supervisor();
        let seen = self.log().len();
        let answer = supervisor.ask("start", PATIENCE).expect("a pid");
        let pid = process::parse(&answer).expect("a pid");
        supervisor.pid = Some(pid);
        let mut ready = false;
        becomes_true(PATIENCE, || {
            ready = (self.kind.ready)(&self.dir, pid);
            ready || !process::alive(pid)
        });
        if ready {
            return Ok(());
        }
        Err(self.log().split_off(seen))
    }

    /// Ends the server cleanly; its port then refuses connections. Does nothing to one that is not running.
    pub fn stop(&self) {
        self.end(self.kind.stop);
    }

    pub fn restart(&self) {
        self.stop();
        self.start();
    }

    /// kill -9 of the server and all its processes, as when the power fails.
    pub fn kill(&self) {
        let Some(pid) = self.supervisor().pid else {
            return;
        };
        // A stopped parent starts no further process while we list them.
        process::pause(pid);
        let sessions = process::children_of(pid);
        self.end("KILL");
        sessions.iter().copied().for_each(process::kill);
        let gone = || !sessions.iter().copied().any(process::alive);
        assert!(becomes_true(PATIENCE, gone), "a session outlives kill -9");
    }

    fn end(&self, signal: &str) {
        let mut supervisor = self.supervisor();
        let Some(pid) = supervisor.pid.take() else {
            return;
        };
        if supervisor
            .ask(&format!("stop {signal}"), PATIENCE)
            .is_none()
        {
            process::kill(pid);
            panic!("{} ignored SIG{signal} for {PATIENCE:?}", self.kind.name);
        }
    }

    /// The server process. Panics when it has been stopped.
    pub fn pid(&self) -> Pid {
        self.supervisor().pid.expect("the server is stopped")
    }

    /// What the server printed since its first start.
    pub fn log(&self) -> String {
        let bytes = fs::read(self.dir.join("log")).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    // A test that panicked while it held the lock must not hide its message behind a poisoned one.
    fn supervisor(&self) -> MutexGuard<'_, Supervisor> {
        self.supervisor
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shell that runs the server and ends it when this process does: see supervise.sh.
struct Supervisor {
    shell: Child,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
    pid: Option<Pid>,
}

impl Supervisor {
    fn spawn(account: &Account, dir: &Path, last: &str, command: Vec<OsString>) -> Supervisor {
        let mut shell = account
            .command("sh")
            .args(["-c", include_str!("supervise.sh"), "supervise"])
            .arg(dir)
            .arg(last)
            .args(command)
            .env("TMPDIR", dir)
            // Ctrl-C at the terminal ends the tests; the shell must be left to clean up after them.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("sh starts");
        let output = shell.stdout.take().expect("piped");
        let (sender, answers) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let orders = shell.stdin.take();
        Supervisor {
            shell,
            orders,
            answers,
            pid: None,
        }
    }

    fn ask(&mut self, order: &str, within: Duration) -> Option<String> {
        let orders = self.orders.as_mut().expect("open until drop");
        writeln!(orders, "{order}").expect("the supervising shell lives");
        self.answers.recv_timeout(within).ok()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.orders = None;
        let shell = &mut self.shell;
        let ended = becomes_true(PATIENCE, || !matches!(shell.try_wait(), Ok(None)));
        if !ended {
            eprintln!("a test server did not end within {PATIENCE:?}");
        }
    }
}

/// Whom the server's processes run as: ourselves, or a plain account when we are root.
struct Account(Option<(u32, u32)>);

impl Account {
    fn of(user: &str) -> Account {
        if !rustix::process::geteuid().is_root() {
            return Account(None);
        }
        let users = fs::read_to_string("/etc/passwd").expect("/etc/passwd");
        let entry = users.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(':').collect();
            match fields[..] {
                [name, _, uid, gid, ..] if name == user => {
                    Some((uid.parse().ok()?, gid.parse().ok()?))
                }
                _ => None,
            }
        });
        let missing =
            || panic!("no user `{user}`, which the server runs as under root: run tests/run.sh");
        Account(Some(entry.unwrap_or_else(missing)))
    }

    fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        if let Some((uid, gid)) = self.0 {
            // The working directory of root may be closed to the account.
            command.uid(uid).gid(gid).current_dir("/");
        }
        for (name, _) in env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("PG") || text.starts_with("MYSQL") || text.starts_with("MARIADB") {
                command.env_remove(&name);
            }
        }
        command.env("LC_ALL", "C");
        command
    }

    fn own(&self, path: &Path) {
        if let Some((uid, gid)) = self.0 {
            std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root may chown");
        }
    }

    fn directory(&self) -> PathBuf {
        let dir = tempfile::Builder::new()
            .prefix("leasehold-")
            .tempdir()
            .expect("a temporary directory");
        self.own(dir.path());
        let reachable = self.command("test").arg("-w").arg(dir.path()).status();
        assert!(
            reachable.is_ok_and(|status| status.success()),
            "the account of the server cannot reach {}: set TMPDIR to a directory open to all",
            dir.path().display()
        );
        // The supervising shell removes it, also when we cannot.
        dir.keep()
    }
}

/// The first program of these names in PATH, in `/usr/sbin` (absent from the PATH of plain users) or in `places`.
pub fn find(names: &[&str], places: &[PathBuf], package: &str) -> PathBuf {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = places.to_vec();
    dirs.extend(env::split_paths(&path));
    dirs.push(PathBuf::from("/usr/sbin"));
    let candidates = names
        .iter()
        .flat_map(|name| dirs.iter().map(move |dir| dir.join(name)));
    candidates
        .into_iter()
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| {
            panic!(
                "{names:?} not found: apt-get install {package}, or run tests/run.sh --install-only"
            )
        })
}

/// What the command printed. Panics with its messages when it fails.
#[track_caller]
pub fn output_of(command: &mut Command, input: &str) -> String {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    // From a thread: a long input must not wait for a long output to be read.
    let writer = thread::spawn(move || stdin.write_all(input.as_bytes()));
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("the command ends");
    let _ = writer.join();
    assert!(
        status.success(),
        "{command:?}: {status}\n{}{}",
        String::from_utf8_lossy(&stdout),
        String::from_utf8_lossy(&stderr)
    );
    String::from_utf8(stdout).expect("UTF-8")
}

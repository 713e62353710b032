//! Everything that a process has started, however it hid: the tree of its descendants.
//!
//! A process group does not do: whoever calls `setsid` leaves it. A subreaper inherits the orphans of its descendants, so nobody
//! leaves the tree. Only Linux has both this and /proc; elsewhere the process group has to do.

use rustix::process::{Pid, Signal};

/// From now on, orphans among the descendants of this process become its children.
pub fn become_subreaper() {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // Old kernels refuse; what escapes its group is then not found.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
}

/// A process that was seen running.
#[derive(Debug, Clone, Copy)]
pub struct Process {
    pub pid: Pid,
    parent: i32,
    /// When it started: with the id, this names one process for good.
    start: u64,
    ended: bool,
}

/// The live processes below `root`.
pub fn live_below(root: Pid) -> Vec<Process> {
    let mut below = below(root);
    below.retain(|process| !process.ended);
    below
}

/// The ended children of this process that nobody has waited for, other than `except`.
pub fn zombies(except: Option<Pid>) -> Vec<Pid> {
    let own = rustix::process::getpid();
    let children = below(own).into_iter().filter(|process| {
        process.ended && process.parent == own.as_raw_nonzero().get() && Some(process.pid) != except
    });
    children.map(|process| process.pid).collect()
}

fn below(root: Pid) -> Vec<Process> {
    // While a process ends, its children have a parent that is not in the list any more. One look is then not enough; a /proc
    // that hides the processes of others always looks so, and therefore a few are.
    let mut all = Vec::new();
    for _ in 0..3 {
        all = everything();
        if all
            .iter()
            .all(|process| process.parent == 0 || contains(&all, process.parent))
        {
            break;
        }
    }
    let mut known = vec![root.as_raw_nonzero().get()];
    let mut found = Vec::new();
    // From parent to child; ids do not tell who is older.
    let mut next = 0;
    while next < known.len() {
        let parent = known[next];
        next += 1;
        for process in all.iter().filter(|process| process.parent == parent) {
            known.push(process.pid.as_raw_nonzero().get());
            found.push(*process);
        }
    }
    found
}

fn contains(all: &[Process], pid: i32) -> bool {
    all.iter()
        .any(|process| process.pid.as_raw_nonzero().get() == pid)
}

#[cfg(any(target_os = "linux", target_os = "android"))]
fn everything() -> Vec<Process> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| look_at(entry.file_name().to_str()?.parse().ok()?))
        .collect()
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn everything() -> Vec<Process> {
    Vec::new()
}

fn look_at(pid: i32) -> Option<Process> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of the command, in brackets, may itself hold spaces and brackets.
    let (_, fields) = stat.rsplit_once(") ")?;
    let fields: Vec<&str> = fields.split(' ').collect();
    Some(Process {
        pid: Pid::from_raw(pid)?,
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        ended: matches!(*fields.first()?, "Z" | "X"),
    })
}

/// Signals the process that was seen, and no other that has got its id since.
pub fn signal(process: &Process, signal: Signal) {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::process::{PidfdFlags, pidfd_open, pidfd_send_signal};
        if let Ok(handle) = pidfd_open(process.pid, PidfdFlags::empty()) {
            let same = look_at(process.pid.as_raw_nonzero().get())
                .is_some_and(|found| found.start == process.start);
            if same && pidfd_send_signal(&handle, signal).is_ok() {
                return;
            }
            if !same {
                return;
            }
        }
    }
    let _ = rustix::process::kill_process(process.pid, signal);
}

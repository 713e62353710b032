//! Signals to, and the state of, processes of this machine.

use std::fs;
use std::process::Child;

pub use rustix::process::{Pid, Signal};

pub fn pid_of(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Freezes the process as a stopped machine would be: it keeps its sockets and files.
pub fn pause(pid: Pid) {
    send(pid, Signal::STOP);
}

pub fn resume(pid: Pid) {
    send(pid, Signal::CONT);
}

/// kill -9: nothing of the process runs any more, no destructor, no handler.
pub fn kill(pid: Pid) {
    send(pid, Signal::KILL);
}

/// A process that has ended already is no error: that is what most signals are sent for.
pub fn send(pid: Pid, signal: Signal) {
    match rustix::process::kill_process(pid, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("cannot signal process {pid}: {error}"),
    }
}

/// Whether the process runs or is stopped; a zombie has ended.
pub fn alive(pid: Pid) -> bool {
    !matches!(state(pid), None | Some('Z' | 'X'))
}

pub fn is_paused(pid: Pid) -> bool {
    state(pid) == Some('T')
}

fn state(pid: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    after_name(&stat)?.chars().next()
}

/// The processes whose parent is `pid`.
pub fn children_of(pid: Pid) -> Vec<Pid> {
    let parent = pid.to_string();
    let mut children = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc").flatten() {
        let Some(candidate) = entry.file_name().to_str().and_then(parse) else {
            continue;
        };
        let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let fields = after_name(&stat).unwrap_or_default();
        if fields.split(' ').nth(1) == Some(&parent) {
            children.push(candidate);
        }
    }
    children
}

pub fn parse(text: &str) -> Option<Pid> {
    Pid::from_raw(text.trim().parse().ok()?)
}

/// The fields of /proc/PID/stat after the command's name, which may itself hold spaces and brackets.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, fields)| fields)
}

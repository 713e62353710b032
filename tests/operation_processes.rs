//! Leases between processes: crash points, failing system calls, killed writers, contention, modes, inheritance.
//!
//! This binary is its own worker, so it has no test harness around it. It needs `strace`.
//! `LEASEHOLD_KILLS`, `LEASEHOLD_TAKEOVER_ROUNDS` and `LEASEHOLD_CONTEND_MS` make it run longer.

#[path = "support/operation.rs"]
mod support;
#[path = "support/operation_worker.rs"]
mod worker;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdout, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold::operation::{
    OperationLeaseError as Error, OperationLeaseStorage, OperationOwnerLease,
};
use support::{Fixture, at, lease, names, rounds, scope};
use worker::{TASK, TASK_ROOT, Transition, record_text, step, transitions};

/// No temporary files.
const NOTHING: [&str; 0] = [];

const TESTS: &[(&str, fn())] = &[
    (
        "modes_are_exact_under_any_umask",
        modes_are_exact_under_any_umask,
    ),
    ("no_child_inherits_the_lock", no_child_inherits_the_lock),
    (
        "a_killed_holder_frees_the_lock",
        a_killed_holder_frees_the_lock,
    ),
    (
        "a_transition_writes_syncs_renames_and_syncs_in_this_order",
        a_transition_syncs_in_order,
    ),
    (
        "a_kill_at_any_system_call_leaves_the_old_or_the_new_record",
        a_kill_at_any_system_call,
    ),
    (
        "a_failure_of_any_system_call_changes_nothing",
        a_failure_of_any_system_call,
    ),
    (
        "a_failing_sync_is_an_error_and_the_old_record_is_back",
        a_failing_sync,
    ),
    (
        "a_full_disk_is_an_error_until_there_is_space_again",
        a_full_disk,
    ),
    (
        "a_record_that_can_be_neither_kept_nor_taken_back_is_said_to_be_unknown",
        an_unknown_outcome,
    ),
    (
        "a_network_filesystem_is_refused_unless_accepted",
        a_network_filesystem,
    ),
    (
        "sixteen_processes_take_over_one_expired_lease",
        sixteen_processes_take_over,
    ),
    (
        "the_lock_file_outlives_contention",
        the_lock_file_outlives_contention,
    ),
    (
        "writers_killed_at_random_leave_whole_records",
        writers_killed_at_random,
    ),
];

fn main() -> ExitCode {
    if let Ok(task) = std::env::var(TASK) {
        return worker::run(&task);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let filters: Vec<_> = arguments
        .iter()
        .filter(|argument| !argument.starts_with('-'))
        .collect();
    if arguments.iter().any(|argument| argument == "--list") {
        TESTS.iter().for_each(|(name, _)| println!("{name}: test"));
        return ExitCode::SUCCESS;
    }
    let mut failed = Vec::new();
    for (name, test) in TESTS {
        if !filters.is_empty() && !filters.iter().any(|filter| name.contains(filter.as_str())) {
            continue;
        }
        let start = Instant::now();
        let passed = std::panic::catch_unwind(test).is_ok();
        let verdict = if passed { "ok" } else { "FAILED" };
        println!(
            "test {name} ... {verdict} ({:.1} s)",
            start.elapsed().as_secs_f64()
        );
        if !passed {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    println!("failed: {failed:?}");
    ExitCode::from(101)
}

/// This binary again, with a task.
fn task(it: &Fixture, task: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(TASK, task).env(TASK_ROOT, it.root.path());
    command
}

/// The same under strace, which writes what it saw to the file `trace` in the storage root.
fn traced(it: &Fixture, what: &str, options: &[&str]) -> Output {
    let mut command = Command::new("strace");
    command
        .args(["-qq", "-y", "-s", "4096", "-o"])
        .arg(it.root.path().join("trace"))
        .args(options);
    command
        .arg(std::env::current_exe().unwrap())
        .env(TASK, what)
        .env(TASK_ROOT, it.root.path());
    let output = command
        .output()
        .expect("these tests need strace: apt-get install strace");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(
        !complaint.contains("strace:"),
        "strace does not work here: {complaint}"
    );
    output
}

fn trace(it: &Fixture) -> Vec<String> {
    let text = fs::read_to_string(it.root.path().join("trace")).unwrap();
    text.lines().map(str::to_owned).collect()
}

/// A storage that holds what `transition` starts from, with the bytes before and after it.
fn before(transition: &Transition) -> (Fixture, Option<Vec<u8>>, Vec<u8>) {
    let it = Fixture::new();
    it.storage().lock().map(drop).unwrap();
    let old = transition
        .before
        .as_ref()
        .map(|lease| record_text(Some(lease), at(0)));
    if let Some(bytes) = &old {
        fs::write(it.record(), bytes).unwrap();
    }
    let new = record_text(transition.after.as_ref(), at(transition.observed));
    (it, old, new)
}

fn record(it: &Fixture) -> Option<Vec<u8>> {
    it.record().exists().then(|| it.bytes())
}

fn temporaries(it: &Fixture) -> Vec<String> {
    names(&it.journals())
        .into_iter()
        .filter(|name| name.ends_with(".tmp"))
        .collect()
}

/// A new handle sweeps, whatever the last process left.
fn assert_swept(it: &Fixture, case: &str) {
    OperationLeaseStorage::new(it.root.path())
        .lock()
        .map(drop)
        .unwrap_or_else(|error| panic!("{case}: {error}"));
    assert_eq!(temporaries(it), NOTHING, "{case}");
}

/// The system calls of a transition, from the first that names the storage to the last before the answer is written. Each
/// comes as strace counts it: its name, and which of the calls of that name it is.
fn own_calls(transition: &Transition) -> Vec<(String, usize)> {
    let (it, _, new) = before(transition);
    let output = traced(&it, &format!("transition {}", transition.kind), &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(record(&it), Some(new));
    let trace = trace(&it);
    let root = it.root.path().to_str().unwrap();
    let first = trace.iter().position(|line| line.contains(root)).unwrap();
    let last = trace
        .iter()
        .position(|line| line.starts_with("write(1"))
        .unwrap();
    let name = |line: &str| line.split('(').next().unwrap().to_owned();
    let calls: Vec<_> = (first..=last)
        .map(|at| {
            let this = name(&trace[at]);
            let number = trace[..=at]
                .iter()
                .filter(|line| name(line) == this)
                .count();
            (this, number)
        })
        .collect();
    assert!(calls.len() > 25, "{calls:?}");
    calls
}

fn modes_are_exact_under_any_umask() {
    for umask in ["000", "002", "022", "077", "777"] {
        let it = Fixture::new();
        assert!(
            task(&it, &format!("umask {umask}"))
                .status()
                .unwrap()
                .success(),
            "umask {umask}"
        );
        for (path, mode) in [
            (it.journals(), 0o700),
            (it.record(), 0o600),
            (it.storage().lock_path(), 0o600),
        ] {
            let found = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, mode, "{} under umask {umask}", path.display());
        }
    }
}

fn no_child_inherits_the_lock() {
    let it = Fixture::new();
    let locked = it.storage().lock().unwrap();
    let open_files = Command::new("ls")
        .args(["-l", "/proc/self/fd"])
        .output()
        .unwrap();
    let open_files = String::from_utf8_lossy(&open_files.stdout).into_owned();
    assert!(open_files.contains("/proc/"), "{open_files}");
    assert!(!open_files.contains("operation-journals"), "{open_files}");
    let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    drop(locked);
    let now = OperationLeaseStorage::new(it.root.path())
        .lock_timeout(Duration::ZERO)
        .unwrap();
    now.lock().map(drop).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
}

fn a_killed_holder_frees_the_lock() {
    let it = Fixture::new();
    let mut child = task(&it, "hold").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let now = OperationLeaseStorage::new(it.root.path())
        .lock_timeout(Duration::ZERO)
        .unwrap();
    assert!(matches!(now.lock(), Err(Error::LockTimeout { .. })));
    child.kill().unwrap();
    child.wait().unwrap();
    now.lock().map(drop).unwrap();
}

fn a_transition_syncs_in_order() {
    for transition in transitions() {
        let (it, _, _) = before(&transition);
        assert!(
            traced(&it, &format!("transition {}", transition.kind), &[])
                .status
                .success()
        );
        let mut steps = Vec::new();
        for line in trace(&it) {
            let journals = format!("{}>", it.journals().display());
            let step = match line.split('(').next().unwrap() {
                "flock" if line.contains("LOCK_EX") => "lock",
                "flock" => "unlock",
                "openat" if line.contains("O_EXCL") && line.contains(".tmp") => "create",
                "write" if line.contains(".tmp>") => "write",
                "fsync" if line.contains(".tmp>") => "sync file",
                "renameat" | "renameat2" | "rename" => "rename",
                "fsync" if line.contains(&journals) => "sync directory",
                "unlink" | "unlinkat" => "unlink",
                _ => continue,
            };
            steps.push(step);
        }
        let expected = [
            "lock",
            "create",
            "write",
            "sync file",
            "rename",
            "sync directory",
            "unlock",
        ];
        assert_eq!(steps, expected, "{}", transition.kind);
    }
}

fn a_kill_at_any_system_call() {
    for transition in transitions() {
        let mut seen = [0, 0];
        for (call, n) in own_calls(&transition) {
            let (it, old, new) = before(&transition);
            let case = format!("{} killed at {call} {n}", transition.kind);
            let inject = format!("inject={call}:signal=KILL:when={n}");
            let output = traced(
                &it,
                &format!("transition {}", transition.kind),
                &["-e", &inject],
            );
            let found = record(&it);
            assert_eq!(output.status.signal(), Some(9), "{case}: {output:?}");
            assert!(
                found == old || found.as_ref() == Some(&new),
                "{case}: {found:?}"
            );
            seen[usize::from(found != old)] += 1;
            assert_swept(&it, &case);
            assert_eq!(record(&it), found, "{case}");
            // Whoever comes next can go on: the same transition, or it is done already.
            let again = task(&it, &format!("transition {}", transition.kind))
                .output()
                .unwrap();
            let again = String::from_utf8_lossy(&again.stdout).trim().to_owned();
            let done = if transition.kind == "acquire" {
                "conflict"
            } else {
                "lost"
            };
            assert_eq!(
                again,
                if found == old {
                    transition.outcome
                } else {
                    done
                },
                "{case}"
            );
            assert_eq!(record(&it), Some(new), "{case}");
        }
        assert!(
            seen[0] > 0 && seen[1] > 0,
            "{}: old and new both occur: {seen:?}",
            transition.kind
        );
    }
}

fn a_failure_of_any_system_call() {
    for transition in transitions() {
        let mut refused = 0;
        for (call, n) in own_calls(&transition) {
            let (it, old, new) = before(&transition);
            let case = format!("{} with {call} {n} failing", transition.kind);
            let inject = format!("inject={call}:error=EIO:when={n}");
            let output = traced(
                &it,
                &format!("transition {}", transition.kind),
                &["-e", &inject],
            );
            assert!(
                trace(&it).iter().any(|line| line.contains("(INJECTED)")),
                "{case}"
            );
            let found = record(&it);
            refused += usize::from(output.status.code() == Some(3));
            match output.status.code() {
                Some(0) => assert_eq!(found, Some(new), "{case}"),
                Some(3) => {
                    assert_eq!(found, old, "{case}: {output:?}");
                    assert_eq!(temporaries(&it), NOTHING, "{case}");
                }
                // Memory that cannot be had, or an answer that cannot be written: not the library's doing.
                _ => assert!(found == old || found == Some(new), "{case}: {output:?}"),
            }
            assert_swept(&it, &case);
        }
        assert!(
            refused > 12,
            "{}: only {refused} failures were errors",
            transition.kind
        );
    }
}

fn failing(transition: &Transition, inject: &[&str]) -> (Fixture, Option<Vec<u8>>, String) {
    let (it, old, _) = before(transition);
    let options: Vec<&str> = inject.iter().flat_map(|inject| ["-e", inject]).collect();
    let output = traced(&it, &format!("transition {}", transition.kind), &options);
    assert_eq!(
        output.status.code(),
        Some(3),
        "{} {inject:?}: {output:?}",
        transition.kind
    );
    (
        it,
        old,
        String::from_utf8_lossy(&output.stdout).into_owned(),
    )
}

fn a_failing_sync() {
    for transition in transitions() {
        for (inject, says) in [
            ("inject=fsync:error=EIO:when=1", "cannot sync "),
            (
                "inject=fsync:error=EIO:when=2",
                "cannot sync the directory ",
            ),
        ] {
            let (it, old, message) = failing(&transition, &[inject]);
            assert!(
                message.contains(says) && message.contains("Input/output error"),
                "{message}"
            );
            assert_eq!(record(&it), old, "{} {inject}", transition.kind);
            assert_eq!(temporaries(&it), NOTHING);
        }
    }
}

fn a_full_disk() {
    for transition in transitions() {
        for call in ["write", "pwrite64", "renameat"] {
            let (it, old, message) = failing(
                &transition,
                &[&format!("inject={call}:error=ENOSPC:when=1")],
            );
            assert!(message.contains("No space left on device"), "{message}");
            assert_eq!(record(&it), old);
            assert_eq!(temporaries(&it), NOTHING);
            let again = task(&it, &format!("transition {}", transition.kind))
                .output()
                .unwrap();
            assert_eq!(
                String::from_utf8_lossy(&again.stdout).trim(),
                transition.outcome
            );
        }
    }
}

fn an_unknown_outcome() {
    let [_, renew, ..] = transitions();
    // The directory's sync fails, and so does the sync of the file that would bring the old record back.
    let (it, _, message) = failing(&renew, &["inject=fsync:error=EIO:when=2+"]);
    assert!(
        message.contains("may be the old or the new one"),
        "{message}"
    );
    assert_eq!(
        record(&it),
        Some(record_text(renew.after.as_ref(), at(renew.observed)))
    );
    assert_eq!(temporaries(&it), NOTHING);
}

fn a_network_filesystem() {
    let [acquire, ..] = transitions();
    // The answer of fstatfs begins with the file system's magic number: here that of NFS.
    let nfs = if cfg!(target_endian = "little") {
        "6969000000000000"
    } else {
        "0000000000006969"
    };
    let (it, _, message) = failing(
        &acquire,
        &[&format!("inject=fstatfs:poke_exit=@arg2={nfs}")],
    );
    assert!(
        message.contains("is on NFS") && message.contains("accept_network_filesystem"),
        "{message}"
    );
    assert_eq!(record(&it), None);
    let accepting = OperationLeaseStorage::new(it.root.path()).accept_network_filesystem(true);
    accepting.lock().map(drop).unwrap();
}

/// A worker that answers lines with lines.
struct Partner {
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl Partner {
    fn start(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, answers }
    }

    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.answers.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn sixteen_processes_take_over() {
    let it = Fixture::new();
    let mut current = lease(50, 0, 10);
    let _ = it.leases.acquire(&current, at(0)).unwrap();
    let mut partners: Vec<_> = (1..=16)
        .map(|n| Partner::start(task(&it, &format!("take-over {n}"))))
        .collect();
    for round in 0..rounds("LEASEHOLD_TAKEOVER_ROUNDS", 100) {
        let predecessor = serde_json::to_string(&current).unwrap();
        for partner in &mut partners {
            writeln!(partner.child.stdin.as_mut().unwrap(), "{predecessor}").unwrap();
        }
        let mut winners = Vec::new();
        for partner in &mut partners {
            match partner.answer().split_once(' ') {
                Some(("taken-over", new)) => {
                    winners.push(serde_json::from_str::<OperationOwnerLease>(new).unwrap())
                }
                Some(("lost", _)) => {}
                other => panic!("round {round}: {other:?}"),
            }
        }
        assert_eq!(winners.len(), 1, "round {round}");
        current = winners.remove(0);
        assert_eq!(
            it.storage()
                .lock()
                .unwrap()
                .current(&scope(1))
                .unwrap()
                .as_ref(),
            Some(&current)
        );
    }
}

fn the_lock_file_outlives_contention() {
    let it = Fixture::new();
    it.storage().lock().map(drop).unwrap();
    let inode = fs::metadata(it.storage().lock_path()).unwrap().ino();
    let millis = rounds("LEASEHOLD_CONTEND_MS", 1500);
    let mut partners: Vec<_> = (0..3)
        .map(|_| Partner::start(task(&it, &format!("contend {millis}"))))
        .collect();
    for partner in &mut partners {
        assert!(
            partner.answer().parse::<u32>().unwrap() > 0,
            "everybody gets a turn"
        );
    }
    let after = fs::metadata(it.storage().lock_path()).unwrap();
    assert_eq!((after.ino(), after.len()), (inode, 0));
    assert_eq!(temporaries(&it), NOTHING);
}

fn writers_killed_at_random() {
    let it = Fixture::new();
    it.storage().lock().map(drop).unwrap();
    let text = |k| {
        let (lease, now) = step(k);
        record_text(lease.as_ref(), at(now))
    };
    let (mut done, mut random) = (-1, 0x9e37_79b9_7f4a_7c15_u64);
    let (mut old, mut new, mut leftovers) = (0, 0, 0);
    let kills = rounds("LEASEHOLD_KILLS", 150);
    for kill in 0..kills {
        let mut partner = Partner::start(task(&it, &format!("history {}", done + 1)));
        let mut lines = vec![partner.answer()];
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros(random >> 32 & 0x1fff));
        partner.child.kill().unwrap();
        partner.child.wait().unwrap();
        lines.extend((&mut partner.answers).lines().map(Result::unwrap));
        for line in &lines {
            match line.split_once(' ') {
                Some(("done", k)) => done = k.parse().unwrap(),
                Some(("begin", k)) => assert_eq!(k.parse::<i64>().unwrap(), done + 1),
                _ => panic!("kill {kill}: {line:?}"),
            }
        }
        leftovers += temporaries(&it).len();
        let found = record(&it);
        if found == Some(text(done + 1)) {
            // Killed between the rename and the telling of it.
            done += 1;
            new += 1;
        } else {
            assert_eq!(found, (done >= 0).then(|| text(done)), "kill {kill}");
            old += 1;
        }
        // This handle is old: it is the mark in the lock file that makes it look.
        let recorded = it.storage().lock().unwrap().current(&scope(1)).unwrap();
        assert_eq!(
            recorded,
            (done >= 0).then(|| step(done).0).flatten(),
            "kill {kill}"
        );
        assert_eq!(temporaries(&it), NOTHING, "kill {kill}");
    }
    println!(
        "  {kills} kills: {old} old records, {new} new ones, {leftovers} leftovers swept, {} transitions",
        done + 1
    );
}

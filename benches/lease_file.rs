//! Lease transitions beside the bare system calls that any durable implementation has to make.
//!
//! The bare side opens and locks a lock file, reads the record, writes a temporary file, syncs it, renames it, syncs the directory and
//! unlocks: no checks, no parsing, the same number of bytes. A last table gives the ratios, from rounds that alternate both sides.
//! `LEASEHOLD_BENCH_DIR` says where to write; a memory file system shows the cost without a disk.

use std::fs::{self, File};
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use chrono::{DateTime, TimeDelta, Utc};
use criterion::Criterion;
use leasehold::operation::{
    OperationConflictScopeReference, OperationId, OperationLeaseFilesystemRepository,
    OperationLeaseResult, OperationLeaseToken, OperationOwnerLease, OwnerId,
};

const RIVAL: &str = "LEASEHOLD_BENCH_RIVAL";
const RIVAL_ROOT: &str = "LEASEHOLD_BENCH_ROOT";

/// A lease that is acquired, renewed and released again and again.
struct Leased {
    leases: OperationLeaseFilesystemRepository,
    held: OperationOwnerLease,
    now: DateTime<Utc>,
}

impl Leased {
    fn new(root: &Path, scope: u8) -> Self {
        let now = DateTime::from_timestamp(1_700_000_000, 0).unwrap();
        let scope_ref = OperationConflictScopeReference::from([scope; 32]);
        let held = OperationOwnerLease::new(
            OperationId::random(),
            scope_ref,
            OwnerId::random(),
            OperationLeaseToken::random(),
            now,
            now + TimeDelta::seconds(1),
        )
        .unwrap();
        let leases = OperationLeaseFilesystemRepository::new(root);
        Self { leases, held, now }
    }

    fn acquire(&mut self) {
        assert!(matches!(
            self.leases.acquire(&self.held, self.now),
            Ok(OperationLeaseResult::Acquired { .. })
        ));
    }

    fn release(&mut self) {
        assert!(matches!(
            self.leases.release(&self.held, self.now),
            Ok(OperationLeaseResult::Released { .. })
        ));
    }

    fn renew(&mut self) {
        let longer = self
            .held
            .with_expiry(self.held.expires_at() + TimeDelta::seconds(1))
            .unwrap();
        let renewed = self.leases.compare_and_swap(&self.held, &longer, self.now);
        assert!(matches!(renewed, Ok(OperationLeaseResult::Renewed { .. })));
        self.held = longer;
    }

    fn inspect(&self) {
        let (scope_ref, operation_id) = (self.held.scope_ref(), self.held.operation_id());
        black_box(
            self.leases
                .inspect(&scope_ref, &operation_id, self.now)
                .unwrap()
                .current(),
        );
    }
}

/// The same work by bare system calls.
struct Bare {
    directory: PathBuf,
    name: String,
    bytes: Vec<u8>,
}

impl Bare {
    fn new(root: &Path, name: &str) -> Self {
        let directory = root.join("bare");
        fs::create_dir_all(&directory).unwrap();
        let name = format!("{}.lease.json", name.repeat(32));
        let bare = Self {
            directory,
            name,
            bytes: vec![b'x'; 683],
        };
        bare.write();
        bare
    }

    fn locked(&self) -> File {
        let lock = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(self.directory.join(".repository.lock"))
            .unwrap();
        lock.lock().unwrap();
        lock
    }

    fn write(&self) {
        let _lock = self.locked();
        self.read_record();
        let temporary = self.directory.join("record.tmp");
        let mut file = File::create(&temporary).unwrap();
        file.write_all(&self.bytes).unwrap();
        file.sync_all().unwrap();
        fs::rename(&temporary, self.directory.join(&self.name)).unwrap();
        File::open(&self.directory).unwrap().sync_all().unwrap();
    }

    fn read(&self) {
        let _lock = self.locked();
        self.read_record();
    }

    fn read_record(&self) {
        if let Ok(mut file) = File::open(self.directory.join(&self.name)) {
            let mut bytes = vec![0; 1024];
            black_box(file.read(&mut bytes).unwrap());
        }
    }
}

/// Processes that renew leases of their own scopes, all through one lock: for ever, or for some seconds.
struct Rivals(Vec<Child>);

impl Rivals {
    fn start(kind: &str, root: &Path, numbers: std::ops::Range<u8>, seconds: u64) -> Self {
        let spawn = |n: u8| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .env(RIVAL, format!("{kind} {n} {seconds}"))
                .env(RIVAL_ROOT, root);
            let mut child = command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .unwrap();
            child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
            child
        };
        let mut rivals = Self(numbers.map(spawn).collect());
        // All are ready; off they go.
        for child in &mut rivals.0 {
            child.stdin.take().unwrap().write_all(b"g").unwrap();
        }
        rivals
    }

    /// Waits for all and adds up their renewals.
    fn count(mut self) -> u32 {
        let count = |child: &mut Child| {
            let mut text = String::new();
            child
                .stdout
                .as_mut()
                .unwrap()
                .read_to_string(&mut text)
                .unwrap();
            text.trim().parse::<u32>().unwrap()
        };
        self.0.iter_mut().map(count).sum()
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn rival(task: &str) {
    let root = PathBuf::from(std::env::var_os(RIVAL_ROOT).unwrap());
    let parts: Vec<&str> = task.split(' ').collect();
    let (n, seconds): (u8, u64) = (parts[1].parse().unwrap(), parts[2].parse().unwrap());
    let mut leased = Leased::new(&root, n);
    let bare = Bare::new(&root, &format!("{n:02x}"));
    let ours = parts[0] == "leased";
    if ours {
        leased.acquire();
    }
    print!("r");
    std::io::stdout().flush().unwrap();
    std::io::stdin().read_exact(&mut [0]).unwrap();
    let start = Instant::now();
    let mut renewals = 0;
    while seconds == 0 || start.elapsed() < Duration::from_secs(seconds) {
        if ours {
            leased.renew()
        } else {
            bare.write()
        }
        renewals += 1;
    }
    if ours {
        leased.release();
    }
    println!("{renewals}");
}

/// The median of `ours` over the median of `bare`, from alternating rounds.
fn ratio(name: &str, rounds: usize, mut ours: impl FnMut(), mut bare: impl FnMut()) {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        for (side, times) in times.iter_mut().enumerate() {
            let start = Instant::now();
            if side == 0 {
                ours()
            } else {
                bare()
            }
            times.push(start.elapsed());
        }
    }
    report(name, times.map(median));
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

fn report(name: &str, [ours, bare]: [Duration; 2]) {
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    println!("{name:<28} {ours:>12.1?}  bare {bare:>12.1?}  ratio {ratio:.3}");
}

/// Time per renewal when eight processes share the lock, from the renewals that all of them got done.
fn under_contention(kind: &str, root: &Path, seconds: u64) -> Duration {
    let renewals = Rivals::start(kind, root, 10..18, seconds).count();
    Duration::from_secs(seconds) / renewals
}

fn main() {
    if let Ok(task) = std::env::var(RIVAL) {
        return rival(&task);
    }
    let root = tempfile::tempdir_in(
        std::env::var_os("LEASEHOLD_BENCH_DIR").map_or_else(std::env::temp_dir, PathBuf::from),
    );
    let root = root.unwrap();
    let mut leased = Leased::new(root.path(), 0);
    let bare = Bare::new(root.path(), "00");
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(20)
        .measurement_time(Duration::from_secs(3));

    criterion.bench_function("acquire+release", |b| {
        b.iter(|| {
            leased.acquire();
            leased.release();
        });
    });
    criterion.bench_function("acquire+release/bare", |b| {
        b.iter(|| {
            bare.write();
            bare.write();
        });
    });
    leased.acquire();
    criterion.bench_function("renew", |b| b.iter(|| leased.renew()));
    criterion.bench_function("renew/bare", |b| b.iter(|| bare.write()));
    criterion.bench_function("inspect", |b| b.iter(|| leased.inspect()));
    criterion.bench_function("inspect/bare", |b| b.iter(|| bare.read()));
    for (kind, name) in [
        ("leased", "renew under contention"),
        ("bare", "renew under contention/bare"),
    ] {
        let rivals = Rivals::start(kind, root.path(), 1..8, 0);
        criterion.bench_function(name, |b| {
            b.iter(|| {
                if kind == "bare" {
                    bare.write()
                } else {
                    leased.renew()
                }
            });
        });
        drop(rivals);
    }
    criterion.final_summary();
    // `cargo test --benches` runs every benchmark once and wants no table.
    if std::env::args().any(|argument| argument == "--test") {
        return;
    }

    println!("\nmedians of alternating rounds");
    leased.release();
    let leased = std::cell::RefCell::new(leased);
    let both = || {
        leased.borrow_mut().acquire();
        leased.borrow_mut().release();
    };
    ratio("acquire+release", 300, both, || {
        bare.write();
        bare.write();
    });
    leased.borrow_mut().acquire();
    ratio(
        "renew",
        500,
        || leased.borrow_mut().renew(),
        || bare.write(),
    );
    ratio(
        "inspect",
        20_000,
        || leased.borrow().inspect(),
        || bare.read(),
    );
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..3 {
        turns[0].push(under_contention("leased", root.path(), 4));
        turns[1].push(under_contention("bare", root.path(), 4));
    }
    report("renew under contention of 8", turns.map(median));
}

//! The thread that keeps the time of all guards of the process. It never asks a database.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::heartbeat::Heartbeat;

/// Whom it keeps the time for.
pub(super) struct Timekeeper {
    watched: Mutex<Watched>,
    wake: Condvar,
}

#[derive(Default)]
struct Watched {
    heartbeats: Vec<Weak<Heartbeat>>,
    runs: bool,
    /// Something has changed since it last looked.
    called: bool,
}

/// The timekeeper of one process. A forked child has its parent's, whose thread it has not, and
/// whose lock may be held for ever; so it gets another, behind that one.
struct OfProcess {
    process: u32,
    timekeeper: Timekeeper,
    next: OnceLock<Box<OfProcess>>,
}

pub(super) fn timekeeper() -> &'static Timekeeper {
    static FIRST: OnceLock<Box<OfProcess>> = OnceLock::new();
    let process = std::process::id();
    let mut slot = &FIRST;
    loop {
        let of_process = slot.get_or_init(|| {
            Box::new(OfProcess {
                process,
                timekeeper: Timekeeper {
                    watched: Mutex::default(),
                    wake: Condvar::new(),
                },
                next: OnceLock::new(),
            })
        });
        if of_process.process == process {
            return &of_process.timekeeper;
        }
        slot = &of_process.next;
    }
}

impl Timekeeper {
    pub(super) fn watch(&'static self, heartbeat: &Arc<Heartbeat>) {
        let mut watched = self.watched.lock();
        watched.heartbeats.retain(|other| other.strong_count() > 0);
        watched.heartbeats.push(Arc::downgrade(heartbeat));
    }

    pub(super) fn start(&'static self) -> io::Result<()> {
        let mut watched = self.watched.lock();
        if !watched.runs {
            let named = thread::Builder::new().name("leasehold-time".to_owned());
            named.spawn(|| self.run())?;
            watched.runs = true;
        }
        Ok(())
    }

    /// There is something new to keep the time for.
    pub(super) fn call(&self) {
        self.watched.lock().called = true;
        self.wake.notify_all();
    }

    fn run(&self) {
        let mut watched = self.watched.lock();
        loop {
            watched.called = false;
            watched
                .heartbeats
                .retain(|heartbeat| heartbeat.strong_count() > 0);
            let alive: Vec<Arc<Heartbeat>> = watched
                .heartbeats
                .iter()
                .filter_map(Weak::upgrade)
                .collect();
            let wait = MutexGuard::unlocked(&mut watched, || look_after(alive));
            if watched.called {
                continue;
            }
            match wait {
                None => self.wake.wait(&mut watched),
                Some(wait) => {
                    let wait = wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
                    self.wake.wait_for(&mut watched, wait);
                }
            }
        }
    }
}

/// Gives the time until the first wants to be looked after again.
fn look_after(heartbeats: Vec<Arc<Heartbeat>>) -> Option<Duration> {
    let keep_time = |heartbeat: Arc<Heartbeat>| {
        // Only a subscriber of the log can panic here; the others' time goes on.
        catch_unwind(AssertUnwindSafe(|| heartbeat.keep_time())).unwrap_or(Some(Duration::ZERO))
    };
    heartbeats.into_iter().filter_map(keep_time).min()
}

//! The thread that keeps the time of all guards of the process. It never asks a database.

use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

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
}

pub(super) fn timekeeper() -> &'static Timekeeper {
    static TIMEKEEPER: Timekeeper = Timekeeper {
        watched: Mutex::new(Watched {
            heartbeats: Vec::new(),
            runs: false,
        }),
        wake: Condvar::new(),
    };
    &TIMEKEEPER
}

impl Timekeeper {
    pub(super) fn watch(&'static self, heartbeat: &Arc<Heartbeat>) {
        self.watched
            .lock()
            .heartbeats
            .push(Arc::downgrade(heartbeat));
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

    /// Under the lock, so that it is heard.
    pub(super) fn call(&self) {
        let _watched = self.watched.lock();
        self.wake.notify_all();
    }

    fn run(&self) {
        let mut watched = self.watched.lock();
        loop {
            watched
                .heartbeats
                .retain(|heartbeat| heartbeat.strong_count() > 0);
            let alive = watched.heartbeats.iter().filter_map(Weak::upgrade);
            match alive.filter_map(|heartbeat| heartbeat.keep_time()).min() {
                None => self.wake.wait(&mut watched),
                Some(wait) => {
                    let wait = wait.clamp(Duration::from_millis(1), Duration::from_secs(1));
                    self.wake.wait_for(&mut watched, wait);
                }
            }
        }
    }
}

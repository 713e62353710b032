//! What the tests stand on: throwaway servers, a faulty network, other processes.
//!
//! A test binary says `mod support;` and takes what it needs.

// Every test binary compiles all of this and uses a part.
#![allow(dead_code, unused_imports)]

pub mod child;
pub mod mariadb;
pub mod pgbouncer;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod python;
pub mod server;

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub use mariadb::MariaDb;
pub use pgbouncer::PgBouncer;
pub use postgres::Postgres;
pub use proxy::Proxy;
pub use server::Options;

/// Returns as soon as `condition` holds; panics, saying `what` was awaited, when it does not hold in time.
#[track_caller]
pub fn wait_until(within: Duration, what: &str, condition: impl FnMut() -> bool) {
    assert!(
        becomes_true(within, condition),
        "not within {within:?}: {what}"
    );
}

/// Whether `condition` holds at some moment of the time given.
pub fn becomes_true(within: Duration, mut condition: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + within;
    let mut pause = Duration::from_millis(1);
    loop {
        if condition() {
            return true;
        }
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(20));
    }
}

/// A directory for one test. Dropped: removed, also when a connection that a pool was still opening has just put a
/// file into it.
#[derive(Debug)]
pub struct Directory(PathBuf);

impl Directory {
    pub fn new() -> Directory {
        Directory(tempfile::tempdir().expect("a directory").keep())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        becomes_true(Duration::from_secs(10), || {
            std::fs::remove_dir_all(&self.0).is_ok() || !self.0.exists()
        });
    }
}

/// A free loopback port that no outgoing connection can take meanwhile: below the range from which Linux draws those,
/// so a server that stops and a proxy that refuses get their port back.
pub fn free_port() -> u16 {
    const RANGE: std::ops::Range<u16> = 15_000..32_000;
    let span = u128::from(RANGE.end - RANGE.start);
    for _ in 0..1_000 {
        let offset = uuid::Uuid::new_v4().as_u128() % span;
        let port = RANGE.start + u16::try_from(offset).expect("an offset within the range");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
    panic!("no free port on 127.0.0.1 in {RANGE:?}");
}

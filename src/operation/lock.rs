//! The one lock of a directory of records: `flock` on a file that nobody ever deletes.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

use super::error::OperationLeaseError;
use super::file::{CAUTIOUS, Directory, FILE_MODE, Identity, io_error, permissions};

pub(super) const LOCK_NAME: &str = ".repository.lock";

/// How much waiting a call may still do.
pub(super) struct Patience {
    since: Instant,
    limit: Duration,
}

impl Patience {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            since: Instant::now(),
            limit,
        }
    }

    /// Sleeps a little, or gives up.
    ///
    /// Waiting for the kernel instead could not be bounded without a thread or a signal. The pauses are a fraction of
    /// the milliseconds for which a durable write holds the lock, so little of its capacity is lost between holders.
    pub(super) fn pause(
        &self,
        attempt: u32,
        directory: &Directory,
    ) -> Result<(), OperationLeaseError> {
        let waited = self.since.elapsed();
        let Some(left) = self
            .limit
            .checked_sub(waited)
            .filter(|left| !left.is_zero())
        else {
            return Err(OperationLeaseError::LockTimeout {
                path: directory.join(LOCK_NAME),
                waited,
            });
        };
        let pause = match waited {
            short if short < Duration::from_secs(1) => Duration::from_micros(50 << attempt.min(4)),
            _ => Duration::from_millis(5),
        };
        thread::sleep(jittered(pause).min(left));
        Ok(())
    }
}

/// Half to one and a half of `pause`, so that waiters do not march in step.
fn jittered(pause: Duration) -> Duration {
    let nanos = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |time| time.subsec_nanos());
    pause / 2 + pause * (nanos % 1024) / 1024
}

/// The held lock. Released when dropped, even if a forked child still has a copy of the handle.
#[derive(Debug)]
pub(super) struct RepositoryLock {
    fd: OwnedFd,
    identity: Identity,
    /// Whether the last holder left the mark of an unfinished write.
    pub(super) found_unfinished: bool,
}

impl RepositoryLock {
    /// Locks the lock file of `directory`, creating it at need.
    ///
    /// Every call has an open file description of its own, so that two threads exclude each other as two processes do.
    pub(super) fn acquire(
        directory: &Directory,
        patience: &Patience,
    ) -> Result<Self, OperationLeaseError> {
        let mut attempt = 0;
        loop {
            let fd = open(directory)?;
            let identity = check(&fd, directory)?;
            while !try_lock(&fd, directory)? {
                patience.pause(attempt, directory)?;
                attempt += 1;
            }
            let found = directory.look_at(LOCK_NAME)?;
            let lock = Self {
                fd,
                identity,
                found_unfinished: found.is_some_and(|stat| stat.st_size != 0),
            };
            // Whoever replaced the file locks another one now: ours would exclude nobody.
            if found.is_some_and(|stat| Identity::of(&stat) == identity) {
                return Ok(lock);
            }
            drop(lock);
            patience.pause(attempt, directory)?;
            attempt += 1;
        }
    }

    /// Whether the lock file at the path is still the locked one.
    pub(super) fn is_in_place(&self, directory: &Directory) -> Result<bool, OperationLeaseError> {
        let found = directory.look_at(LOCK_NAME)?;
        Ok(found.is_some_and(|stat| Identity::of(&stat) == self.identity))
    }

    /// Leaves a mark in the lock file: whoever finds it next has a killed writer's leftovers to sweep.
    pub(super) fn mark_unfinished(&self, directory: &Directory) -> Result<(), OperationLeaseError> {
        match rustix::io::pwrite(&self.fd, b"w", 0) {
            Ok(_) => Ok(()),
            Err(errno) => Err(io_error(
                "mark the write in",
                directory.join(LOCK_NAME),
                errno,
            )),
        }
    }

    /// Takes the mark away. Failing to is harmless: the next holder sweeps for nothing.
    pub(super) fn mark_finished(&self) {
        let _ = rustix::fs::ftruncate(&self.fd, 0);
    }
}

impl Drop for RepositoryLock {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.fd, FlockOperation::Unlock);
    }
}

fn open(directory: &Directory) -> Result<OwnedFd, OperationLeaseError> {
    let flags = OFlags::RDWR | OFlags::CREATE | CAUTIOUS;
    loop {
        match rustix::fs::openat(directory, LOCK_NAME, flags, FILE_MODE) {
            Ok(fd) => return Ok(fd),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(directory.open_error("open the lock file", LOCK_NAME, errno)),
        }
    }
}

fn try_lock(fd: &OwnedFd, directory: &Directory) -> Result<bool, OperationLeaseError> {
    loop {
        match rustix::fs::flock(fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(io_error("lock", directory.join(LOCK_NAME), errno)),
        }
    }
}

/// Refuses anything but a plain file of ours, and gives it the exact mode whatever the umask.
fn check(fd: &OwnedFd, directory: &Directory) -> Result<Identity, OperationLeaseError> {
    let path = || directory.join(LOCK_NAME);
    let stat = rustix::fs::fstat(fd).map_err(|errno| io_error("look at", path(), errno))?;
    directory.check_file(LOCK_NAME, &stat)?;
    if permissions(&stat) != FILE_MODE {
        rustix::fs::fchmod(fd, FILE_MODE)
            .map_err(|errno| io_error("restrict the mode of", path(), errno))?;
    }
    Ok(Identity::of(&stat))
}

//! Files and directories reached without trusting what lies at their paths.
//!
//! Everything is opened relative to one directory handle, without following links and without blocking, and is looked at
//! through the handle before a byte is read or written.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

use super::error::OperationLeaseError;
use super::fault::{FileKind, PathFault, RecordFault};
use super::record::MAX_RECORD_BYTES;

/// What every file is opened with: no link is followed, no FIFO or device blocks, no child inherits the handle.
pub(super) const CAUTIOUS: OFlags = OFlags::NOFOLLOW
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

pub(super) const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
pub(super) const DIRECTORY_MODE: Mode = Mode::RWXU;

/// An error of the operating system, with what was being done and where.
pub(super) fn io_error(
    action: &'static str,
    path: impl Into<PathBuf>,
    source: Errno,
) -> OperationLeaseError {
    OperationLeaseError::Io {
        action,
        path: path.into(),
        source: io::Error::from(source),
    }
}

/// Which file a path leads to: equal for equal files, whatever their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity(u64, u64);

#[allow(clippy::unnecessary_cast, reason = "the widths differ between systems")]
impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        Self(stat.st_dev as u64, stat.st_ino as u64)
    }
}

/// The permission bits of a file, and nothing else of its mode.
pub(super) fn permissions(stat: &Stat) -> Mode {
    Mode::from_raw_mode(stat.st_mode & 0o7777)
}

fn kind(stat: &Stat) -> FileKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::RegularFile,
        FileType::Directory => FileKind::Directory,
        FileType::Fifo => FileKind::Fifo,
        FileType::Socket => FileKind::Socket,
        FileType::CharacterDevice => FileKind::CharacterDevice,
        FileType::BlockDevice => FileKind::BlockDevice,
        _ => FileKind::Other,
    }
}

fn check_owner(stat: &Stat, expected: u32) -> Result<(), PathFault> {
    match stat.st_uid {
        owner if owner == expected => Ok(()),
        owner => Err(PathFault::ForeignOwner { owner, expected }),
    }
}

/// Whether this is a regular file of ours with a single name.
#[allow(clippy::unnecessary_cast, reason = "the width differs between systems")]
fn check_file(stat: &Stat, owner: u32) -> Result<(), PathFault> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => return Err(PathFault::Symlink),
        FileType::RegularFile => {}
        _ => return Err(PathFault::NotRegularFile { kind: kind(stat) }),
    }
    let links = stat.st_nlink as u64;
    // Zero names: deleted between opening and looking, which the callers notice by themselves.
    if links > 1 {
        return Err(PathFault::HardLinked { links });
    }
    check_owner(stat, owner)
}

/// Whether this is a directory of ours.
pub(super) fn check_directory(stat: &Stat) -> Result<(), PathFault> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::Symlink => Err(PathFault::Symlink),
        FileType::Directory => check_owner(stat, rustix::process::geteuid().as_raw()),
        _ => Err(PathFault::NotDirectory { kind: kind(stat) }),
    }
}

/// Attaches the path to what is wrong with it.
pub(super) fn unsafe_path(
    path: impl Into<PathBuf>,
) -> impl FnOnce(PathFault) -> OperationLeaseError {
    let path = path.into();
    |reason| OperationLeaseError::UnsafePath { path, reason }
}

/// An open directory of lease records.
#[derive(Debug)]
pub(super) struct Directory {
    fd: OwnedFd,
    path: PathBuf,
    identity: Identity,
    /// Whose the directory is: this process's user, who has to own the files as well.
    owner: u32,
    /// Whether leftovers from before this handle was opened have been looked for.
    pub(super) swept: AtomicBool,
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Directory {
    pub(super) fn new(fd: OwnedFd, path: PathBuf, stat: &Stat) -> Self {
        Self {
            fd,
            path,
            identity: Identity::of(stat),
            owner: stat.st_uid,
            swept: AtomicBool::new(false),
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn join(&self, name: impl AsRef<OsStr>) -> PathBuf {
        self.path.join(name.as_ref())
    }

    /// Whether the path still leads to this directory. Restores the mode if somebody loosened it.
    pub(super) fn is_in_place(&self) -> Result<bool, OperationLeaseError> {
        let stat = match rustix::fs::lstat(&self.path) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(false),
            Err(errno) => return Err(io_error("look at the directory", &self.path, errno)),
        };
        if Identity::of(&stat) != self.identity {
            return Ok(false);
        }
        if permissions(&stat) != DIRECTORY_MODE {
            rustix::fs::fchmod(&self.fd, DIRECTORY_MODE)
                .map_err(|errno| io_error("restrict the mode of", &self.path, errno))?;
        }
        Ok(true)
    }

    /// What is at `name` itself; a link is not followed.
    pub(super) fn look_at(&self, name: &str) -> Result<Option<Stat>, OperationLeaseError> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(stat)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(io_error("look at", self.join(name), errno)),
        }
    }

    /// Refuses anything at `name` but a regular file of ours with a single name.
    pub(super) fn check_file(&self, name: &str, stat: &Stat) -> Result<(), OperationLeaseError> {
        check_file(stat, self.owner).map_err(unsafe_path(self.join(name)))
    }

    /// Why opening `name` failed: what is there instead of a plain file, if that is the reason.
    pub(super) fn open_error(
        &self,
        action: &'static str,
        name: &str,
        errno: Errno,
    ) -> OperationLeaseError {
        match self
            .look_at(name)
            .map(|found| found.map(|stat| self.check_file(name, &stat)))
        {
            Ok(Some(Err(error))) => error,
            _ => io_error(action, self.join(name), errno),
        }
    }

    /// The bytes of the record at `name`, or `None` where there is nothing.
    pub(super) fn read_record(&self, name: &str) -> Result<Option<Vec<u8>>, OperationLeaseError> {
        let fd = match rustix::fs::openat(&self.fd, name, OFlags::RDONLY | CAUTIOUS, Mode::empty())
        {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.open_error("open", name, errno)),
        };
        let stat =
            rustix::fs::fstat(&fd).map_err(|errno| io_error("look at", self.join(name), errno))?;
        self.check_file(name, &stat)?;
        let mode = permissions(&stat);
        if mode.intersects(Mode::WGRP | Mode::WOTH) {
            #[allow(
                clippy::useless_conversion,
                reason = "the width differs between systems"
            )]
            let mode = u32::from(mode.as_raw_mode());
            return Err(unsafe_path(self.join(name))(PathFault::Writable { mode }));
        }
        self.read_bounded(&fd, name, &stat).map(Some)
    }

    fn read_bounded(
        &self,
        fd: &OwnedFd,
        name: &str,
        stat: &Stat,
    ) -> Result<Vec<u8>, OperationLeaseError> {
        let oversized = || OperationLeaseError::Record {
            path: self.join(name),
            reason: RecordFault::Oversized {
                limit: MAX_RECORD_BYTES,
            },
        };
        let size = u64::try_from(stat.st_size).unwrap_or(u64::MAX);
        if size > MAX_RECORD_BYTES {
            return Err(oversized());
        }
        // One byte of room beyond the size, so that the usual file is read to its end by one call.
        let mut bytes = vec![0; size as usize + 1];
        let mut filled = 0;
        loop {
            match rustix::io::read(fd, &mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(io_error("read", self.join(name), errno)),
            }
            if filled < bytes.len() {
                break;
            }
            if filled as u64 > MAX_RECORD_BYTES {
                return Err(oversized());
            }
            bytes.resize(filled * 2, 0);
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    /// Makes the names in the directory durable.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        sync_directory(&self.fd)
    }
}

/// Makes the names in a directory durable.
pub(super) fn sync_directory(fd: impl AsFd) -> Result<(), Errno> {
    rustix::fs::fsync(fd)
}

//! The directory of lease records and the authority of its lock.

use std::fs::DirBuilder;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::error::OperationLeaseError;
use super::file::{
    DIRECTORY_MODE, Directory, check_directory, io_error, permissions, sync_directory, unsafe_path,
};
use super::filesystem;
use super::id::OperationConflictScopeReference;
use super::lock::{LOCK_NAME, Patience, RepositoryLock};
use super::locked::LockedOperationLeases;
use super::replace;

const JOURNALS: &str = "operation-journals";

const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_LOCK_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);

/// Lease records beside operation journals, and the one lock that guards both.
///
/// Everything lies in `<storage_root>/operation-journals/` (mode 0700): one `<scope_ref>.lease.json` (mode 0600) per conflict scope,
/// and the lock file `.repository.lock`, which nobody ever deletes. The published Python package can use the same directory at
/// the same time.
///
/// A handle may be shared by threads; two handles on one directory exclude each other like two processes.
#[derive(Debug)]
pub struct OperationLeaseStorage {
    storage_root: PathBuf,
    journals: PathBuf,
    lock_timeout: Duration,
    accept_network_filesystem: bool,
    directory: Mutex<Option<Arc<Directory>>>,
}

impl OperationLeaseStorage {
    /// Binds a storage to its root; nothing is touched yet. A relative root is meant from the current directory of this moment.
    pub fn new(storage_root: impl Into<PathBuf>) -> Self {
        let storage_root = storage_root.into();
        // An empty path cannot be made absolute, and is refused where it is used first.
        let storage_root = std::path::absolute(&storage_root).unwrap_or(storage_root);
        Self {
            journals: storage_root.join(JOURNALS),
            storage_root,
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            accept_network_filesystem: false,
            directory: Mutex::new(None),
        }
    }

    /// Sets how long a call waits for the repository lock. Zero tries once.
    ///
    /// Defaults to 30 seconds.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::Setting`] beyond 24 hours.
    pub fn lock_timeout(mut self, lock_timeout: Duration) -> Result<Self, OperationLeaseError> {
        if lock_timeout > MAX_LOCK_TIMEOUT {
            return Err(OperationLeaseError::Setting {
                setting: "lock_timeout",
                value: lock_timeout,
                min: Duration::ZERO,
                max: MAX_LOCK_TIMEOUT,
            });
        }
        self.lock_timeout = lock_timeout;
        Ok(self)
    }

    /// Sets whether to go on where file locks cannot be relied on: NFS, SMB, FUSE, cluster file systems, folders shared with a
    /// virtual machine's host. Accepting means that two owners are possible there.
    ///
    /// Defaults to `false`: such a file system is refused.
    pub fn accept_network_filesystem(mut self, accept: bool) -> Self {
        self.accept_network_filesystem = accept;
        self
    }

    /// The root given to [`new`](Self::new), made absolute.
    pub fn storage_root(&self) -> &Path {
        &self.storage_root
    }

    /// The record file of a conflict scope.
    pub fn path_for(&self, scope_ref: &OperationConflictScopeReference) -> PathBuf {
        self.journals.join(record_name(scope_ref))
    }

    /// The lock file: `.repository.lock` in the journal directory.
    pub fn lock_path(&self) -> PathBuf {
        self.journals.join(LOCK_NAME)
    }

    /// Creates the journal directory and the missing directories above it, durably, and gives it mode 0700.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::UnsafePath`] where something else stands in its place or it is another user's,
    /// [`OperationLeaseError::NetworkFilesystem`], or [`OperationLeaseError::Io`].
    pub fn ensure_root(&self) -> Result<(), OperationLeaseError> {
        self.open_root().map(drop)
    }

    /// Takes the repository lock, waiting for at most the lock timeout. [`ensure_root`](Self::ensure_root) is included.
    ///
    /// # Errors
    ///
    /// [`OperationLeaseError::LockTimeout`] when others held it for the whole time, and those of `ensure_root`. Also
    /// [`OperationLeaseError::UnsafePath`] when the lock file or a killed writer's leftover is not a plain file.
    #[doc(alias = "lock_target")]
    pub fn lock(&self) -> Result<LockedOperationLeases<'_>, OperationLeaseError> {
        let patience = Patience::new(self.lock_timeout);
        let mut attempt = 0;
        loop {
            let cached = self.directory.lock().clone();
            let directory = match cached {
                Some(directory) => directory,
                None => self.open_root()?,
            };
            match RepositoryLock::acquire(&directory, &patience) {
                Ok(lock) if directory.is_in_place()? => {
                    replace::sweep(&directory, &lock)?;
                    return Ok(LockedOperationLeases::new(self, directory, lock));
                }
                // A deleted directory takes no new lock file.
                Err(OperationLeaseError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
                Ok(_) => {}
            }
            // The directory was moved or deleted since it was opened: what is at the path now counts.
            *self.directory.lock() = None;
            patience.pause(attempt, &directory)?;
            attempt += 1;
        }
    }

    fn open_root(&self) -> Result<Arc<Directory>, OperationLeaseError> {
        create_durably(&self.storage_root)
            .map_err(|(path, source)| io_error_from("create", path, source))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(&self.storage_root, flags, Mode::empty())
            .map_err(|errno| io_error("open", &self.storage_root, errno))?;
        let fd = open_journals(&root, &self.journals)?;
        let stat =
            rustix::fs::fstat(&fd).map_err(|errno| io_error("look at", &self.journals, errno))?;
        check_directory(&stat).map_err(unsafe_path(&self.journals))?;
        if !self.accept_network_filesystem {
            self.refuse_network_filesystem(&fd)?;
        }
        if permissions(&stat) != DIRECTORY_MODE {
            rustix::fs::fchmod(&fd, DIRECTORY_MODE)
                .map_err(|errno| io_error("restrict the mode of", &self.journals, errno))?;
        }
        let directory = Arc::new(Directory::new(fd, self.journals.clone(), &stat));
        *self.directory.lock() = Some(directory.clone());
        Ok(directory)
    }

    fn refuse_network_filesystem(&self, fd: impl AsFd) -> Result<(), OperationLeaseError> {
        match filesystem::doubtful(fd) {
            Ok(None) => Ok(()),
            Ok(Some(filesystem)) => Err(OperationLeaseError::NetworkFilesystem {
                path: self.journals.clone(),
                filesystem,
            }),
            Err(errno) => Err(io_error("find the file system of", &self.journals, errno)),
        }
    }
}

/// The name of a scope's record file.
pub(super) fn record_name(scope_ref: &OperationConflictScopeReference) -> String {
    format!("{scope_ref}.lease.json")
}

fn io_error_from(action: &'static str, path: PathBuf, source: io::Error) -> OperationLeaseError {
    OperationLeaseError::Io {
        action,
        path,
        source,
    }
}

/// Creates a directory and the missing ones above it, and syncs the directory that each new name is in.
fn create_durably(path: &Path) -> Result<(), (PathBuf, io::Error)> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(parent) = path.parent() {
        create_durably(parent)?;
    }
    match DirBuilder::new().create(path) {
        Ok(()) => {}
        // Another process was faster, or a link leads to something else: opening it will tell.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(()),
        Err(error) => return Err((path.to_owned(), error)),
    }
    match path.parent() {
        Some(parent) => std::fs::File::open(parent)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| (parent.to_owned(), error)),
        None => Ok(()),
    }
}

/// Opens the journal directory itself, never through a link, and creates it at need.
fn open_journals(root: &OwnedFd, path: &Path) -> Result<OwnedFd, OperationLeaseError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::mkdirat(root, JOURNALS, DIRECTORY_MODE) {
        Ok(()) => {
            // A umask that takes the owner's own bits away would keep the next line from opening it.
            rustix::fs::chmodat(root, JOURNALS, DIRECTORY_MODE, AtFlags::empty())
                .map_err(|errno| io_error("restrict the mode of", path, errno))?;
            sync_directory(root)
                .map_err(|errno| io_error("sync the directory above", path, errno))?;
        }
        Err(Errno::EXIST) => {}
        Err(errno) => return Err(io_error("create", path, errno)),
    }
    rustix::fs::openat(root, JOURNALS, flags, Mode::empty()).map_err(|errno| {
        let found = rustix::fs::statat(root, JOURNALS, AtFlags::SYMLINK_NOFOLLOW);
        match found.map(|stat| check_directory(&stat)) {
            Ok(Err(reason)) => unsafe_path(path)(reason),
            _ => io_error("open", path, errno),
        }
    })
}

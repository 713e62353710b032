//! Replacing a record so that a crash leaves the old one or the new one, whole.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;

use rustix::fs::{AtFlags, OFlags};
use rustix::io::Errno;

use super::error::OperationLeaseError;
use super::file::{CAUTIOUS, Directory, FILE_MODE, io_error};
use super::lock::{LOCK_NAME, RepositoryLock};

/// Puts `new` in the place of `old` (the bytes now there, or `None`), durably.
///
/// On an error the old bytes are there, except after [`OperationLeaseError::OutcomeUnknown`].
pub(super) fn replace(
    directory: &Directory,
    lock: &RepositoryLock,
    name: &str,
    old: Option<&[u8]>,
    new: &[u8],
) -> Result<(), OperationLeaseError> {
    lock.mark_unfinished(directory)?;
    put_in_place(directory, lock, name, new)?;
    if let Err(errno) = directory.sync() {
        take_back(directory, lock, name, old, errno)?;
        return Err(io_error("sync the directory", directory.path(), errno));
    }
    lock.mark_finished();
    Ok(())
}

/// Undoes a rename that could not be made durable, so that an error means "nothing changed" to whoever looks next.
fn take_back(
    directory: &Directory,
    lock: &RepositoryLock,
    name: &str,
    old: Option<&[u8]>,
    cause: Errno,
) -> Result<(), OperationLeaseError> {
    let undone = match old {
        Some(bytes) => put_in_place(directory, lock, name, bytes),
        None => rustix::fs::unlinkat(directory, name, AtFlags::empty())
            .map_err(|errno| io_error("remove", directory.join(name), errno)),
    };
    // Whether the disk will keep the old name or the new one is not known in either case; both are whole records.
    let _ = directory.sync();
    undone.map_err(|rollback| OperationLeaseError::OutcomeUnknown {
        path: directory.join(name),
        source: io::Error::from(cause),
        rollback: Box::new(rollback),
    })
}

/// Writes a temporary file beside the record and renames it over the record; removes it if anything fails.
fn put_in_place(
    directory: &Directory,
    lock: &RepositoryLock,
    name: &str,
    bytes: &[u8],
) -> Result<(), OperationLeaseError> {
    let (fd, temporary) = create_temporary(directory, name)?;
    let outcome = write_durably(directory, &fd, &temporary, bytes).and_then(|()| {
        if !lock.is_in_place(directory)? || !directory.is_in_place()? {
            let path = directory.join(LOCK_NAME);
            return Err(OperationLeaseError::LockLost { path });
        }
        rustix::fs::renameat(directory, &*temporary, directory, name).map_err(|errno| {
            io_error(
                "put the new record in place of",
                directory.join(name),
                errno,
            )
        })
    });
    if outcome.is_err() {
        // Should this fail too, the mark in the lock file makes the next holder try again.
        let _ = rustix::fs::unlinkat(directory, &*temporary, AtFlags::empty());
    }
    outcome
}

/// Creates `<record>.<process id>.<8 random hexadecimal digits>.tmp`, the pattern of the published package.
fn create_temporary(
    directory: &Directory,
    name: &str,
) -> Result<(OwnedFd, String), OperationLeaseError> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | CAUTIOUS;
    loop {
        let mut random = [0; 4];
        getrandom::fill(&mut random).map_err(|error| OperationLeaseError::Io {
            action: "get random bytes to name a file in",
            path: directory.path().to_owned(),
            source: io::Error::other(error.to_string()),
        })?;
        let temporary = format!(
            "{name}.{}.{:08x}.tmp",
            std::process::id(),
            u32::from_ne_bytes(random)
        );
        match rustix::fs::openat(directory, &*temporary, flags, FILE_MODE) {
            Ok(fd) => return Ok((fd, temporary)),
            Err(Errno::EXIST | Errno::INTR) => {}
            Err(errno) => return Err(io_error("create", directory.join(temporary), errno)),
        }
    }
}

fn write_durably(
    directory: &Directory,
    fd: &OwnedFd,
    temporary: &str,
    bytes: &[u8],
) -> Result<(), OperationLeaseError> {
    let failed = |action| move |errno| io_error(action, directory.join(temporary), errno);
    // The umask may have taken bits away from the mode given at creation.
    rustix::fs::fchmod(fd, FILE_MODE).map_err(failed("restrict the mode of"))?;
    let mut rest = bytes;
    while !rest.is_empty() {
        match rustix::io::write(fd, rest) {
            Ok(0) => return Err(failed("write to")(Errno::IO)),
            Ok(count) => rest = &rest[count..],
            Err(Errno::INTR) => {}
            Err(errno) => return Err(failed("write to")(errno)),
        }
    }
    sync_file(fd).map_err(failed("sync"))
}

/// Makes the content of a file durable.
fn sync_file(fd: &OwnedFd) -> Result<(), Errno> {
    // On Apple systems plain `fsync` leaves the data in the drive's cache.
    #[cfg(target_vendor = "apple")]
    return rustix::fs::fcntl_fullfsync(fd);
    #[cfg(not(target_vendor = "apple"))]
    rustix::fs::fsync(fd)
}

/// Removes the temporary files of killed writers. The lock is held, so no live writer has one.
///
/// The whole directory is read once per handle, and again only when the last holder of the lock did not finish.
pub(super) fn sweep(
    directory: &Directory,
    lock: &RepositoryLock,
) -> Result<(), OperationLeaseError> {
    if directory.swept.load(Ordering::Relaxed) && !lock.found_unfinished {
        return Ok(());
    }
    let failed = |errno| io_error("list", directory.path(), errno);
    for entry in rustix::fs::Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let Some(name) = entry
            .file_name()
            .to_str()
            .ok()
            .filter(|name| is_temporary(name))
        else {
            continue;
        };
        let Some(stat) = directory.look_at(name)? else {
            continue;
        };
        // No writer makes links or FIFOs: whoever put one there is told, and finds it untouched.
        directory.check_file(name, &stat)?;
        rustix::fs::unlinkat(directory, name, AtFlags::empty())
            .map_err(|errno| io_error("remove", directory.join(name), errno))?;
    }
    directory.swept.store(true, Ordering::Relaxed);
    if lock.found_unfinished {
        lock.mark_finished();
    }
    Ok(())
}

/// Whether a name is exactly what [`create_temporary`] makes for some record.
fn is_temporary(name: &str) -> bool {
    let is_hex = |text: &str| {
        text.bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let parts: Vec<&str> = name.split('.').collect();
    match parts[..] {
        [scope, "lease", "json", process, random, "tmp"] => {
            scope.len() == 64
                && is_hex(scope)
                && (1..=10).contains(&process.len())
                && process.bytes().all(|byte| byte.is_ascii_digit())
                && random.len() == 8
                && is_hex(random)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_temporary;

    #[test]
    fn only_what_a_writer_makes_is_temporary() {
        let scope = "0f".repeat(32);
        assert!(is_temporary(&format!("{scope}.lease.json.1.0123abcd.tmp")));
        for live in [
            format!("{scope}.lease.json"),
            format!("{scope}.json"),
            format!("{scope}.json.12.0123abcd.tmp"),
            format!("{scope}.lease.json.tmp"),
            format!("{scope}.lease.json.x.0123abcd.tmp"),
            format!("{scope}.lease.json.1.0123abcd.tmp.bak"),
            format!("{scope}.lease.json.1.0123ABCD.tmp"),
            format!("{}.lease.json.1.0123abcd.tmp", &scope[1..]),
            ".repository.lock".to_owned(),
            "notes.tmp".to_owned(),
        ] {
            assert!(!is_temporary(&live), "{live}");
        }
    }
}

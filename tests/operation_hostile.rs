//! Hostile paths: links, FIFOs, devices, foreign files, leftovers; each its own error, and the victim stays as it is.

#[path = "support/operation_refusals.rs"]
mod refusals;
#[path = "support/operation.rs"]
mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use leasehold::operation::{
    FileKind, OperationLeaseError as Error, OperationLeaseFilesystemRepository,
    OperationLeaseStorage, PathFault,
};
use refusals::{refusals, trace, with_record};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use support::{Fixture, at, lease, names, operation, scope};

/// Puts something else than a plain file at `path`; returns the fault it must be refused with.
fn plant(what: &str, path: &Path, victim: &Path) -> PathFault {
    match what {
        "symlink" => {
            symlink(victim, path).unwrap();
            PathFault::Symlink
        }
        "dangling link" => {
            symlink("/nonexistent/place", path).unwrap();
            PathFault::Symlink
        }
        "hard link" => {
            fs::hard_link(victim, path).unwrap();
            PathFault::HardLinked { links: 2 }
        }
        "directory" => {
            fs::create_dir(path).unwrap();
            PathFault::NotRegularFile {
                kind: FileKind::Directory,
            }
        }
        "FIFO" => {
            mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
            PathFault::NotRegularFile {
                kind: FileKind::Fifo,
            }
        }
        "socket" => {
            mknodat(CWD, path, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).unwrap();
            PathFault::NotRegularFile {
                kind: FileKind::Socket,
            }
        }
        // The null device; only root may make one.
        "device" => {
            mknodat(
                CWD,
                path,
                FileType::CharacterDevice,
                Mode::RUSR | Mode::WUSR,
                makedev(1, 3),
            )
            .unwrap();
            PathFault::NotRegularFile {
                kind: FileKind::CharacterDevice,
            }
        }
        other => panic!("{other}"),
    }
}

/// Where something is put, in a storage.
type Place = fn(&Fixture) -> PathBuf;

fn plants() -> Vec<&'static str> {
    let mut plants = vec![
        "symlink",
        "dangling link",
        "hard link",
        "directory",
        "FIFO",
        "socket",
    ];
    if rustix::process::geteuid().is_root() {
        plants.push("device");
    }
    plants
}

#[test]
fn at_the_record_the_lock_or_a_temporary_path_only_a_plain_file_is_accepted() {
    let temporary = |it: &Fixture| {
        it.journals()
            .join(format!("{}.lease.json.7.0123abcd.tmp", scope(1)))
    };
    let places: [(&str, Place); 3] = [
        ("record", |it| it.record()),
        ("lock", |it| it.storage().lock_path()),
        ("temporary", temporary),
    ];
    for (place, path_of) in places {
        for what in plants() {
            let it = Fixture::new();
            it.storage().ensure_root().unwrap();
            let victim = it.root.path().join("victim");
            fs::write(&victim, "precious").unwrap();
            fs::set_permissions(&victim, fs::Permissions::from_mode(0o640)).unwrap();
            let path = path_of(&it);
            let fault = plant(what, &path, &victim);
            let (before, planted) = (trace(&victim), trace(&path));
            for error in refusals(&it.leases) {
                match &error {
                    Error::UnsafePath {
                        path: refused,
                        reason,
                    } => {
                        assert_eq!((refused, *reason), (&path, fault), "{what} at the {place}");
                    }
                    other => panic!("{what} at the {place}: {other}"),
                }
            }
            assert_eq!(trace(&victim), before, "{what} at the {place}");
            assert_eq!(trace(&path), planted, "{what} at the {place}");
        }
    }
}

#[test]
fn at_the_directory_only_a_directory_is_accepted() {
    for (what, fault) in [
        ("symlink", PathFault::Symlink),
        ("dangling link", PathFault::Symlink),
        (
            "FIFO",
            PathFault::NotDirectory {
                kind: FileKind::Fifo,
            },
        ),
        (
            "hard link",
            PathFault::NotDirectory {
                kind: FileKind::RegularFile,
            },
        ),
    ] {
        let it = Fixture::new();
        let victim = it.root.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        plant(what, &it.journals(), &victim);
        let before = trace(&victim);
        for error in refusals(&it.leases) {
            assert!(
                matches!(&error, Error::UnsafePath { reason, .. } if *reason == fault),
                "{what}: {error}"
            );
        }
        assert!(it.storage().ensure_root().is_err());
        assert_eq!(trace(&victim), before);
    }
    // A link to a directory is refused as well: it could lead out of the storage root.
    let it = Fixture::new();
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), it.journals()).unwrap();
    assert!(matches!(
        refusals(&it.leases)[0],
        Error::UnsafePath {
            reason: PathFault::Symlink,
            ..
        }
    ));
    assert!(names(elsewhere.path()).is_empty());
}

#[test]
fn the_storage_root_itself_may_be_reached_through_a_link() {
    let real = tempfile::tempdir().unwrap();
    let link = real.path().join("link");
    fs::create_dir(real.path().join("data")).unwrap();
    symlink("data", &link).unwrap();
    let leases = OperationLeaseFilesystemRepository::new(&link);
    let _ = leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    assert!(real.path().join("data/operation-journals").is_dir());
}

#[test]
fn a_record_that_others_may_write_is_refused() {
    let (it, _) = with_record();
    for mode in [0o620, 0o602, 0o666] {
        fs::set_permissions(it.record(), fs::Permissions::from_mode(mode)).unwrap();
        for error in refusals(&it.leases) {
            assert!(
                matches!(&error, Error::UnsafePath { reason: PathFault::Writable { mode: found }, .. } if *found == mode),
                "{error}"
            );
        }
    }
    fs::set_permissions(it.record(), fs::Permissions::from_mode(0o644)).unwrap();
    let _ = it.leases.release(&lease(1, 0, 10), at(1)).unwrap();
    assert_eq!(trace(&it.record()).mode & 0o7777, 0o600);
}

#[test]
fn files_and_directories_of_another_user_are_refused() {
    // Only root can give files away; anybody else has no way to make the case.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let paths: [Place; 3] = [
        |it| it.record(),
        |it| it.storage().lock_path(),
        |it| it.journals(),
    ];
    for path_of in paths {
        let (it, _) = with_record();
        std::os::unix::fs::chown(path_of(&it), Some(4242), None).unwrap();
        let fresh = OperationLeaseFilesystemRepository::new(it.root.path());
        for error in refusals(&fresh) {
            let expected = PathFault::ForeignOwner {
                owner: 4242,
                expected: 0,
            };
            assert!(
                matches!(&error, Error::UnsafePath { reason, .. } if *reason == expected),
                "{error}"
            );
        }
    }
}

#[test]
fn leftovers_of_killed_writers_are_swept_and_nothing_else() {
    let (it, good) = with_record();
    let leftover = format!("{}.lease.json.999999.0123abcd.tmp", scope(9));
    let keep = [
        format!("{}.json", scope(9)),
        format!("{}.json.999999.0123abcd.tmp", scope(9)),
        format!("{}.lease.json", scope(8)),
        format!("{}.lease.json.tmp", scope(9)),
        "notes.tmp".to_owned(),
    ];
    for name in keep.iter().chain([&leftover]) {
        fs::write(it.journals().join(name), "{").unwrap();
    }
    // This handle has swept before; a new one looks once.
    OperationLeaseStorage::new(it.root.path())
        .lock()
        .map(drop)
        .unwrap();
    let left = names(&it.journals());
    assert!(!left.contains(&leftover));
    assert!(keep.iter().all(|name| left.contains(name)), "{left:?}");
    assert_eq!(it.bytes(), good.as_bytes());

    // The mark of an unfinished write makes every handle look.
    fs::write(it.journals().join(&leftover), "{").unwrap();
    fs::write(it.storage().lock_path(), "w").unwrap();
    let _ = it.leases.inspect(&scope(1), &operation(1), at(1)).unwrap();
    assert!(!names(&it.journals()).contains(&leftover));
    assert_eq!(fs::metadata(it.storage().lock_path()).unwrap().len(), 0);
}

#[test]
fn a_writer_in_progress_keeps_its_temporary_file() {
    let (it, _) = with_record();
    let live = it
        .journals()
        .join(format!("{}.lease.json.1.0123abcd.tmp", scope(1)));
    // As any writer does, it holds the lock: whoever would sweep has to wait, and here gives up.
    let locked = it.storage().lock().unwrap();
    fs::write(&live, "{").unwrap();
    let impatient = OperationLeaseStorage::new(it.root.path())
        .lock_timeout(Duration::ZERO)
        .unwrap();
    assert!(matches!(impatient.lock(), Err(Error::LockTimeout { .. })));
    assert!(live.exists());
    drop(locked);
}

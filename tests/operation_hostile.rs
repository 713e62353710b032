//! Damaged records and hostile paths: each its own error, at once, and whatever is there stays as it is.

#[path = "support/operation.rs"]
mod support;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use leasehold::operation::{
    FileKind, InvalidInstant, OperationLeaseError as Error, OperationLeaseFilesystemRepository,
    OperationLeaseStorage, PathFault, RecordFault as Fault,
};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};
use support::{Fixture, at, lease, names, operation, scope};

/// What must not change about a file that is refused.
#[derive(Debug, PartialEq)]
struct Trace {
    bytes: Option<Vec<u8>>,
    mode: u32,
    links: u64,
    modified: SystemTime,
    inode: u64,
}

fn trace(path: &Path) -> Trace {
    let meta = fs::symlink_metadata(path).unwrap();
    Trace {
        bytes: meta.is_file().then(|| fs::read(path).unwrap()),
        mode: meta.permissions().mode(),
        links: meta.nlink(),
        modified: meta.modified().unwrap(),
        inode: meta.ino(),
    }
}

/// Every call that reads the record, one after the other, each within a second.
fn refusals(leases: &OperationLeaseFilesystemRepository) -> Vec<Error> {
    let start = Instant::now();
    let (mine, longer) = (lease(1, 0, 10), lease(1, 0, 20));
    let errors = vec![
        leases.inspect(&scope(1), &operation(1), at(1)).unwrap_err(),
        leases.acquire(&lease(2, 1, 5), at(1)).unwrap_err(),
        leases.compare_and_swap(&mine, &longer, at(1)).unwrap_err(),
        leases.release(&mine, at(1)).unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.current(&scope(1)).map(drop))
            .unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.replace(&scope(1), &operation(1), None, at(1)))
            .unwrap_err(),
        leases
            .storage()
            .lock()
            .and_then(|locked| locked.require_live_exact(&scope(1), &operation(1), &mine, at(1)))
            .unwrap_err(),
    ];
    assert!(
        start.elapsed() < Duration::from_secs(1),
        "took {:?}",
        start.elapsed()
    );
    errors
}

/// A fixture with a sound record in place, and that record's text.
fn with_record() -> (Fixture, String) {
    let it = Fixture::new();
    let _ = it.leases.acquire(&lease(1, 0, 10), at(0)).unwrap();
    let text = String::from_utf8(it.bytes()).unwrap();
    (it, text)
}

#[test]
fn every_damage_has_its_own_error_and_the_file_stays() {
    let (it, good) = with_record();
    let hex = |n: u8| scope(n).to_string();
    let line = |starts: &str| {
        let line = good
            .lines()
            .find(|line| line.trim_start().starts_with(starts))
            .unwrap();
        format!("{line}\n")
    };
    let without = |starts: &str| good.replacen(&line(starts), "", 1);
    let twice = |starts: &str| good.replacen(&line(starts), &line(starts).repeat(2), 1);
    let owner = line("\"owner_id\"");
    let cases: Vec<(Vec<u8>, Fault)> = vec![
        (vec![], Fault::Empty),
        (b"{".to_vec(), Fault::Truncated),
        (good.as_bytes()[..good.len() / 2].to_vec(), Fault::Truncated),
        (vec![0; 1 << 20], Fault::Oversized { limit: 65_536 }),
        (vec![0; 1000], Fault::Malformed { line: 1, column: 1 }),
        (
            b"not json".to_vec(),
            Fault::Malformed { line: 1, column: 2 },
        ),
        (b"\xff\xfe".to_vec(), Fault::NotUtf8),
        (format!("{good}x").into_bytes(), Fault::TrailingBytes),
        (format!("{good}{good}").into_bytes(), Fault::TrailingBytes),
        (format!("{good}\0").into_bytes(), Fault::TrailingBytes),
        (
            b"[]".to_vec(),
            Fault::WrongType {
                field: "record",
                expected: "an object",
            },
        ),
        (
            b"{}".to_vec(),
            Fault::MissingField {
                field: "schema_version",
            },
        ),
        (
            without("\"operation_id\"").into_bytes(),
            Fault::MissingField {
                field: "operation_id",
            },
        ),
        (
            without("\"owner_id\"").into_bytes(),
            Fault::MissingField { field: "owner_id" },
        ),
        (
            without("\"recorded_at\"").into_bytes(),
            Fault::MissingField {
                field: "recorded_at",
            },
        ),
        (
            twice("\"recorded_at\"").into_bytes(),
            Fault::DuplicateField {
                field: "recorded_at",
            },
        ),
        (
            twice("\"token\"").into_bytes(),
            Fault::DuplicateField { field: "token" },
        ),
        (
            twice("\"schema_version\"").into_bytes(),
            Fault::DuplicateField {
                field: "schema_version",
            },
        ),
        (
            good.replacen(&owner, &format!("{owner}\"extra\": 1,\n"), 1)
                .into_bytes(),
            Fault::UnknownField {
                field: "extra".into(),
            },
        ),
        (
            good.replacen("{", "{\"lease_holder\": [1, {}],", 1)
                .into_bytes(),
            Fault::UnknownField {
                field: "lease_holder".into(),
            },
        ),
        (
            good.replace("\"schema_version\": 2", "\"schema_version\": 3")
                .into_bytes(),
            Fault::UnknownVersion { found: "3".into() },
        ),
        (
            good.replace("\"schema_version\": 2", "\"schema_version\": -1")
                .into_bytes(),
            Fault::UnknownVersion { found: "-1".into() },
        ),
        (
            good.replace("\"schema_version\": 2", "\"schema_version\": \"2\"")
                .into_bytes(),
            Fault::WrongType {
                field: "schema_version",
                expected: "an integer",
            },
        ),
        (
            good.replace("\"schema_version\": 2", "\"schema_version\": 2.0")
                .into_bytes(),
            Fault::WrongType {
                field: "schema_version",
                expected: "an integer",
            },
        ),
        (
            good.replacen(&line("\"recorded_at\""), "\"recorded_at\": 5,\n", 1)
                .into_bytes(),
            Fault::WrongType {
                field: "recorded_at",
                expected: "a string",
            },
        ),
        (
            good.replace("2023-11-14T22:13:20Z", "2023-11-14T22:13:20+01:00")
                .into_bytes(),
            Fault::InvalidInstant {
                field: "recorded_at",
                reason: InvalidInstant::NotUtc,
            },
        ),
        (
            good.replacen("22:13:30Z", "22:13:30.0000001Z", 1)
                .into_bytes(),
            Fault::InvalidInstant {
                field: "expires_at",
                reason: InvalidInstant::TooPrecise,
            },
        ),
        (
            good.replace(&hex(1), &hex(2)).into_bytes(),
            Fault::ForeignScope,
        ),
        (
            good.replacen(
                &format!("\"scope_ref\": \"{}\"", hex(1)),
                &format!("\"scope_ref\": \"{}\"", hex(2)),
                1,
            )
            .into_bytes(),
            Fault::LeaseScopeMismatch,
        ),
        (
            good.replacen(&operation(1).to_string(), &operation(2).to_string(), 1)
                .into_bytes(),
            Fault::LeaseOperationMismatch,
        ),
        (
            good.replacen("22:13:30Z", "22:13:20Z", 1).into_bytes(),
            Fault::LeaseWindow,
        ),
        (
            good.replacen("22:13:20Z", "22:13:19Z", 1).into_bytes(),
            Fault::AcquiredAfterRecorded,
        ),
    ];
    let mut seen = Vec::new();
    for (bytes, expected) in cases {
        fs::write(it.record(), &bytes).unwrap();
        let before = trace(&it.record());
        for error in refusals(&it.leases) {
            match error {
                Error::Record { path, reason } => {
                    assert_eq!(path, it.record());
                    assert_eq!(
                        reason,
                        expected,
                        "{:?}",
                        String::from_utf8_lossy(&bytes[..bytes.len().min(60)])
                    );
                }
                other => panic!("{expected}: {other}"),
            }
        }
        assert_eq!(trace(&it.record()), before);
        assert_eq!(names(&it.journals()).len(), 2);
        seen.push(expected);
    }
    fs::write(it.record(), format!("{}\n \n", good.trim_end())).unwrap();
    assert!(
        it.leases.inspect(&scope(1), &operation(1), at(1)).is_ok(),
        "white space is no damage"
    );
}

#[test]
fn an_identifier_in_a_record_is_checked_and_not_echoed() {
    let (it, good) = with_record();
    let token = format!("\"token\": \"{}\"", scope(1));
    let secret = "FEDCBA98".repeat(8);
    fs::write(
        it.record(),
        good.replace(&token, &format!("\"token\": \"{secret}\"")),
    )
    .unwrap();
    for error in refusals(&it.leases) {
        assert!(matches!(
            &error,
            Error::Record {
                reason: Fault::InvalidIdentifier { field: "token", .. },
                ..
            }
        ));
        assert!(!format!("{error} {error:?}").contains("FEDCBA98"));
    }
}

#[test]
fn a_deeply_nested_record_is_refused_without_exhausting_the_stack() {
    let (it, _) = with_record();
    fs::write(it.record(), "[".repeat(60_000)).unwrap();
    for error in refusals(&it.leases) {
        assert!(
            matches!(
                error,
                Error::Record {
                    reason: Fault::Malformed { .. },
                    ..
                }
            ),
            "{error}"
        );
    }
}

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

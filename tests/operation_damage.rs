//! Damaged records: each damage is its own error, told at once, and the file stays as it is.

#[path = "support/operation_refusals.rs"]
mod refusals;
#[path = "support/operation.rs"]
mod support;

use std::fs;

use leasehold::operation::{InvalidInstant, OperationLeaseError as Error, RecordFault as Fault};
use refusals::{refusals, trace, with_record};
use support::{at, names, operation, scope};

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

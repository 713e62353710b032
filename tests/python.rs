//! The published Python package and this crate in one election, on PostgreSQL.

#![cfg(feature = "postgres")]

mod support;

use std::time::Duration;

use leasehold::election::Election;
use support::{Postgres, python};
use uuid::Uuid;

/// Runs calls of the Python package, which knows `ids`, and gives what they print.
fn package(url: &str, ids: &[Uuid], calls: &str) -> String {
    let program = format!(
        "import sys
from uuid import UUID
from gemstone_utils.db import init_db
from gemstone_utils.election import *
init_db(sys.argv[1])
set_expire(8)
ids = [UUID(i) for i in sys.argv[2:]]
{calls}"
    );
    let url = python::sqlalchemy_url(url);
    let ids: Vec<String> = ids.iter().map(Uuid::to_string).collect();
    let mut arguments = vec![url.as_str()];
    arguments.extend(ids.iter().map(String::as_str));
    python::run(&program, &arguments).trim().to_owned()
}

/// One election, whichever side created the tables.
fn one_election(url: &str) {
    let election = Election::builder(url)
        .expire(Duration::from_secs(8))
        .build()
        .unwrap();
    let (ours, theirs) = (Uuid::new_v4(), Uuid::new_v4());
    let both = [ours, theirs];

    // Ours leads; the package follows and is listed, here and there.
    assert_eq!(election.elect(ours, "x").unwrap(), ours);
    let first = election.leader("x").unwrap().unwrap().term;
    let told = package(
        url,
        &both,
        "print(elect(ids[1], 'x'), is_leader(ids[0], 'x'), list_candidates('x') == sorted(ids))",
    );
    assert_eq!(told, format!("{ours} True True"));
    let mut sorted = both;
    sorted.sort();
    assert_eq!(election.list_candidates("x").unwrap(), sorted);

    // Ours lapses; the package takes over; ours follows.
    support::wait_until(Duration::from_secs(30), "the lease ends", || {
        election.leader("x").unwrap().is_none()
    });
    let told = package(url, &both, "set_expire(60); print(elect(ids[1], 'x'))");
    assert_eq!(told, theirs.to_string());
    assert_eq!(election.elect(ours, "x").unwrap(), theirs);
    assert!(election.is_leader(theirs, "x").unwrap());
    assert_eq!(
        election.leader("x").unwrap().unwrap().term,
        first,
        "the package leaves the term"
    );
    election.unregister_candidate(ours, "x").unwrap();
    assert!(election.is_leader(theirs, "x").unwrap());

    // The package leaves; ours takes over under a higher term.
    package(url, &both, "unregister_candidate(ids[1], 'x')");
    assert_eq!(election.leader("x").unwrap(), None);
    assert_eq!(election.elect(ours, "x").unwrap(), ours);
    assert!(election.leader("x").unwrap().unwrap().term > first);

    // Ours leaves; the package takes over at once. None is the same namespace on both sides.
    election.unregister_candidate(ours, "x").unwrap();
    assert_eq!(
        package(url, &both, "print(elect(ids[1], 'x'))"),
        theirs.to_string()
    );
    assert_eq!(
        package(url, &both, "print(elect(ids[1]))"),
        theirs.to_string()
    );
    assert_eq!(election.elect(ours, None).unwrap(), theirs);
    support::wait_until(Duration::from_secs(30), "their lease ends", || {
        election.elect(ours, None).unwrap() == ours
    });
}

#[test]
fn tables_created_here_serve_both() {
    let url = Postgres::shared().fresh_database();
    Election::connect(&url).unwrap();
    one_election(&url);
}

#[test]
fn tables_created_by_the_package_serve_both() {
    let url = Postgres::shared().fresh_database();
    package(&url, &[], "");
    one_election(&url);
}

#[test]
fn both_sides_may_create_the_tables_at_once() {
    for _ in 0..5 {
        let url = Postgres::shared().fresh_database();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| package(&url, &[], ""));
                scope.spawn(|| Election::connect(&url).unwrap());
            }
        });
        assert!(
            Election::connect(&url)
                .unwrap()
                .leader("x")
                .unwrap()
                .is_none()
        );
    }
}

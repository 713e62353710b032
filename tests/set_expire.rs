//! `set_expire` holds for the whole process, so it has a process of its own.

#![cfg(feature = "sqlite")]

use std::time::Duration;

use diesel::prelude::*;
use diesel::sqlite::SqliteConnection;
use leasehold::election::{
    Election, ElectionError, elect, leader, list_candidates, migrate, set_expire,
};
use uuid::Uuid;

#[test]
fn set_expire_holds_for_the_calls_that_follow() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db").display().to_string();
    let conn = &mut SqliteConnection::establish(&path).unwrap();
    migrate(conn).unwrap();
    let mut left = |ns: &str| {
        elect(conn, Uuid::new_v4(), Some(ns)).unwrap();
        leader(conn, Some(ns)).unwrap().unwrap().remaining
    };
    let minute = Duration::from_secs(60);
    assert!(left("a") > minute - Duration::from_secs(2) && left("a2") <= minute);

    for refused in [0, 365 * 24 * 60 * 60 + 1, u32::MAX] {
        let error = set_expire(refused).unwrap_err();
        assert!(
            matches!(error, ElectionError::InvalidSetting { .. }),
            "{error}"
        );
    }
    assert!(
        left("b") > minute - Duration::from_secs(2),
        "a refused value changes nothing"
    );

    set_expire(1).unwrap();
    assert!(left("c") <= Duration::from_secs(1));
    set_expire(365 * 24 * 60 * 60).unwrap();
    assert!(left("d") > Duration::from_secs(364 * 24 * 60 * 60));

    // A handle follows the process, unless it has an expire of its own.
    let url = format!("sqlite:{path}");
    let follows = Election::connect(&url).unwrap();
    let own = Election::builder(&url).expire(minute).build().unwrap();
    set_expire(100).unwrap();
    for (election, ns, most) in [(&follows, "e", 100), (&own, "f", 60)] {
        election.elect(Uuid::new_v4(), ns).unwrap();
        let left = election.leader(ns).unwrap().unwrap().remaining;
        assert!(left <= Duration::from_secs(most) && left > Duration::from_secs(most - 5));
    }
    assert_eq!(list_candidates(conn, Some("f")).unwrap().len(), 1);
}

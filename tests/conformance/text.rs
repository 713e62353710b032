//! F12: names that differ in any byte are different namespaces, on every database.

use leasehold::election::{ElectionError, elect, leader, list_candidates, unregister_candidate};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![
    names_that_look_alike_are_two_namespaces,
    what_some_database_would_fold_is_refused_by_all,
    the_longest_name_works_and_quotes_are_only_text,
];

fn names_that_look_alike_are_two_namespaces<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let pairs = [
        ("Jobs", "jobs"),
        ("a", "á"),
        ("\u{e9}", "e\u{301}"),
        ("ß", "ss"),
        ("a", "a\u{200b}"),
        ("o", "ö"),
        ("I", "ı"),
        ("ﬁ", "fi"),
        ("K", "\u{212a}"),
    ];
    for (round, (one, two)) in pairs.into_iter().enumerate() {
        let (one, two) = (format!("{round} {one}"), format!("{round} {two}"));
        let (a, b) = (Uuid::new_v4(), Uuid::new_v4());
        assert_eq!(elect(conn, a, Some(&one)).unwrap(), a);
        assert_eq!(elect(conn, b, Some(&two)).unwrap(), b, "{one:?} {two:?}");
        assert_eq!(list_candidates(conn, Some(&one)).unwrap(), [a]);
        assert_eq!(list_candidates(conn, Some(&two)).unwrap(), [b]);
        unregister_candidate(conn, b, Some(&one)).unwrap();
        unregister_candidate(conn, a, Some(&one)).unwrap();
        assert_eq!(leader(conn, Some(&one)).unwrap(), None);
        assert_eq!(leader(conn, Some(&two)).unwrap().unwrap().candidate_id, b);
    }
}

fn what_some_database_would_fold_is_refused_by_all<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let me = Uuid::new_v4();
    let (long, wide) = ("x".repeat(256), "𝒳".repeat(256));
    let names = [
        "a ",
        " a",
        "",
        "\0",
        "a\0b",
        "\n",
        "a\u{7f}",
        "a\u{3000}",
        "\t",
        &long,
        &wide,
    ];
    for ns in names {
        let errors = [
            elect(conn, me, Some(ns)).unwrap_err(),
            list_candidates(conn, Some(ns)).unwrap_err(),
            unregister_candidate(conn, me, Some(ns)).unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(error, ElectionError::InvalidNamespace { .. }),
                "{ns:?}: {error}"
            );
            assert!(!error.is_retryable());
        }
    }
    for table in ["leader", "candidate", "tenure"] {
        let rows = conn.number(&format!(
            "SELECT count(*) AS value FROM gemstone_election_{table}"
        ));
        assert_eq!(rows, 0, "{table}");
    }
}

fn the_longest_name_works_and_quotes_are_only_text<C: Database>() {
    let fresh = Fresh::new::<C>();
    let conn = &mut fresh.connect::<C>();
    let wide = "𝒳".repeat(255);
    for ns in [
        wide.as_str(),
        "a'b",
        "a\\b",
        "%",
        "_",
        "{ns}",
        "$1",
        "a\"b",
        "; DROP TABLE x",
    ] {
        let me = Uuid::new_v4();
        assert_eq!(elect(conn, me, Some(ns)).unwrap(), me, "{ns}");
        assert_eq!(list_candidates(conn, Some(ns)).unwrap(), [me]);
    }
}

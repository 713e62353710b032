//! Each condition of each statement, below the rule that would not ask for it.

use std::thread;

use super::*;
use crate::election::pool::{Open, Opening};
use crate::election::test_support::{self as support, Directory};
use crate::election::url::DatabaseUrl;
use crate::election::{Ending, migrate};

const SECOND: i64 = 1_000_000;

struct Fresh {
    opening: Opening,
    _dir: Option<Directory>,
}

impl Fresh {
    fn new<S: Tested>() -> Fresh {
        let (url, dir) = S::empty();
        let opening = Opening {
            url: DatabaseUrl::parse(&url).expect("a URL"),
            statement_timeout: Duration::from_secs(5),
            prepared_statements: true,
        };
        let fresh = Fresh { opening, _dir: dir };
        S::make_tables(&mut fresh.open::<S>());
        fresh
    }

    fn open<S: Open>(&self) -> S {
        S::open(&self.opening).expect("connect")
    }
}

trait Tested: Open {
    fn empty() -> (String, Option<Directory>);
    fn make_tables(&mut self);
}

macro_rules! tested {
    ($($name:ident),* $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            use super::*;
            impl Tested for diesel::pg::PgConnection {
                fn empty() -> (String, Option<Directory>) {
                    (support::Postgres::shared().fresh_database(), None)
                }
                fn make_tables(&mut self) {
                    migrate::migrate(self).expect("migrate");
                }
            }
            $(#[test] fn $name() { super::$name::<diesel::pg::PgConnection>() })*
        }
        #[cfg(feature = "mysql")]
        mod mariadb {
            use super::*;
            impl Tested for diesel::mysql::MysqlConnection {
                fn empty() -> (String, Option<Directory>) {
                    (support::MariaDb::shared().fresh_database(), None)
                }
                fn make_tables(&mut self) {
                    migrate::migrate(self).expect("migrate");
                }
            }
            $(#[test] fn $name() { super::$name::<diesel::mysql::MysqlConnection>() })*
        }
        #[cfg(feature = "sqlite")]
        mod sqlite {
            use super::*;
            impl Tested for diesel::sqlite::SqliteConnection {
                fn empty() -> (String, Option<Directory>) {
                    let dir = Directory::new();
                    let url = format!("sqlite:{}", dir.path().join("x.db").display());
                    (url, Some(dir))
                }
                fn make_tables(&mut self) {
                    migrate::migrate(self).expect("migrate");
                }
            }
            $(#[test] fn $name() { super::$name::<diesel::sqlite::SqliteConnection>() })*
        }
    };
}

tested![
    a_renewal_matches_candidate_term_and_an_unexpired_lease,
    a_release_matches_candidate_term_and_an_unexpired_lease,
    a_fence_matches_candidate_term_and_an_unexpired_lease,
    a_glance_renews_for_the_holder_of_an_unexpired_lease_alone,
    a_glance_shows_the_same_whatever_was_expected,
    many_are_renewed_each_by_its_own_conditions,
    the_clock_goes_on_inside_a_transaction,
    a_locked_row_is_found_busy_without_a_wait,
    the_end_of_a_tenure_is_written_once,
    a_client_that_stops_inside_its_transaction_loses_the_row,
    a_registration_is_refreshed_and_not_only_kept,
    what_ended_long_ago_is_found_near_a_place_and_forgotten,
];

const ME: &str = "00000000-0000-4000-8000-000000000001";
const OTHER: &str = "00000000-0000-4000-8000-000000000002";

fn args(me: &'static str, term: i64, expire: i64) -> Args<'static> {
    Args {
        ns: "x",
        me,
        term,
        expire,
        ..Args::default()
    }
}

/// `ME` leads under term 7, for `expire` microseconds.
fn lead<S: Tested>(store: &mut S, expire: i64) {
    let args = args(ME, 7, expire);
    store.ensure_row(&args).unwrap();
    store.take(&args, Term::ZERO).unwrap();
    store.beat(&args).unwrap();
}

fn row<S: Tested>(store: &mut S) -> RawRow {
    store.leader_rows(&args(ME, 7, 0)).unwrap().remove(0)
}

/// Everything that is not the tenure of `ME` under term 7, and then that tenure once it is over.
fn none_but_the_holder<S: Tested>(act: impl Fn(&mut S, &Args<'_>) -> bool) {
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, 60 * SECOND);
    let before = row(store);
    for wrong in [
        args(ME, 6, SECOND),
        args(ME, 8, SECOND),
        args(OTHER, 7, SECOND),
    ] {
        assert!(!act(store, &wrong), "{wrong:?}");
    }
    assert_eq!(row(store), before);
    lead_again_and_lapse(store);
    let before = row(store);
    assert!(!act(store, &args(ME, 7, SECOND)), "its lease is over");
    assert_eq!(row(store), before);
}

fn lead_again_and_lapse<S: Tested>(store: &mut S) {
    let short = args(ME, 7, 20_000);
    assert!(store.renew(&short).unwrap());
    thread::sleep(Duration::from_millis(40));
}

fn a_renewal_matches_candidate_term_and_an_unexpired_lease<S: Tested>() {
    none_but_the_holder::<S>(|store, args| store.renew(args).unwrap());
}

fn a_release_matches_candidate_term_and_an_unexpired_lease<S: Tested>() {
    none_but_the_holder::<S>(|store, args| {
        let text = Ending::Resigned.as_stored();
        store.release(&Args { text, ..*args }).unwrap()
    });
}

fn a_fence_matches_candidate_term_and_an_unexpired_lease<S: Tested>() {
    none_but_the_holder::<S>(|store, args| store.fence(args).unwrap());
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, 60 * SECOND);
    assert!(store.fence(&args(ME, 7, SECOND)).unwrap());
}

fn a_glance_renews_for_the_holder_of_an_unexpired_lease_alone<S: Tested>() {
    glances::<S>(Expected::Nothing);
    glances::<S>(Expected::ToLead);
}

fn glances<S: Tested>(expected: Expected) {
    let fresh = Fresh::new::<S>();
    let (store, other) = (&mut fresh.open::<S>(), &mut fresh.open::<S>());
    let locks_rows = S::PATIENCE <= Duration::from_secs(2);
    let me = args(ME, 0, 60 * SECOND);
    let both = |store: &mut S| (row(store), store.candidate_rows(&me).unwrap());
    lead(store, 30 * SECOND);
    // The clock is UTC also where the session's is not; the other databases do not know the word.
    let _ = store.batch_execute("SET time_zone = '+05:00'");

    let before = both(store);
    assert!(
        !store
            .glance(&args(OTHER, 7, 60 * SECOND), expected)
            .unwrap()
            .renewed
    );
    assert_eq!(both(store), before);
    assert!(store.glance(&me, expected).unwrap().renewed);
    let after = both(store);
    assert!(after.0.3 > before.0.3, "the lease");
    assert!(after.1[0].3 > before.1[0].3, "the registration");
    if let Some(Standing::Held { remaining, .. }) = store.look(&me).unwrap() {
        assert!(remaining <= Duration::from_secs(60), "{remaining:?}");
    }

    // A row that another session holds is not waited for, and neither row is then written.
    if locks_rows {
        for row in ["leader", "candidate"] {
            let hold = format!("SELECT * FROM gemstone_election_{row} FOR UPDATE");
            let seen = other.in_transaction(|other| {
                other.batch_execute(&hold)?;
                let began = std::time::Instant::now();
                let seen = store.glance(&me, expected)?;
                assert!(began.elapsed() < Duration::from_secs(1), "{row}");
                Ok(seen)
            });
            assert!(!seen.unwrap().renewed, "{row}");
            assert_eq!(both(store), after, "{row}");
        }
    }

    // Without a registration there is nothing to refresh: the call makes one.
    store.withdraw(&me).unwrap();
    assert!(!store.glance(&me, expected).unwrap().renewed);
    assert_eq!(row(store), after.0);
    store.beat(&me).unwrap();

    lead_again_and_lapse(store);
    let before = both(store);
    assert!(
        !store.glance(&me, expected).unwrap().renewed,
        "its lease is over"
    );
    assert_eq!(both(store), before);
}

fn a_glance_shows_the_same_whatever_was_expected<S: Tested>() {
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    let all = [Expected::Nothing, Expected::ToLead, Expected::ToFollow];
    for expected in all {
        assert!(
            store
                .glance(&args(ME, 0, SECOND), expected)
                .unwrap()
                .standing
                .is_none()
        );
    }
    lead(store, 60 * SECOND);
    store.beat(&args(OTHER, 0, 30 * SECOND)).unwrap();
    for expected in all {
        let seen = store.glance(&args(OTHER, 0, SECOND), expected).unwrap();
        let Some(Standing::Held {
            by,
            term,
            remaining,
        }) = seen.standing
        else {
            panic!("{expected:?}: {seen:?}")
        };
        assert_eq!((by.to_string().as_str(), term.get()), (ME, 7));
        assert!(remaining > Duration::from_secs(50), "{expected:?}");
        let left = seen.registration_left.expect("it is registered");
        assert!(
            left > 20 * SECOND && left <= 30 * SECOND,
            "{expected:?}: {left}"
        );
        assert!(!seen.renewed);
    }
    // Who leads against expectation is told so.
    let seen = store
        .glance(&args(ME, 0, SECOND), Expected::ToFollow)
        .unwrap();
    assert!(seen.is_led_by(&args(ME, 0, 0)) && !seen.is_led_by(&args(OTHER, 0, 0)));
}

fn ask(ns: &str, me: &str, term: i64) -> Ask {
    Ask {
        ns: ns.into(),
        me: me.parse().unwrap(),
        term,
        expire: 30 * SECOND,
    }
}

fn many_are_renewed_each_by_its_own_conditions<S: Tested>() {
    none_but_the_holder::<S>(|store, args| {
        let ask = ask(args.ns, args.me, args.term);
        !store.renew_all(&[ask]).unwrap().is_empty()
    });
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, 60 * SECOND);
    for ns in ["y", "z"] {
        let args = Args {
            ns,
            ..args(OTHER, 3, 60 * SECOND)
        };
        store.ensure_row(&args).unwrap();
        store.take(&args, Term::ZERO).unwrap();
    }
    let asks = [
        ask("x", ME, 7),
        ask("x", OTHER, 6),
        ask("y", OTHER, 3),
        ask("z", OTHER, 2),
        ask("none", ME, 1),
    ];
    let mut renewed = store.renew_all(&asks).unwrap();
    renewed.sort();
    assert_eq!(renewed, [format!("3 {OTHER} y"), format!("7 {ME} x")]);
    for (ns, left) in [("x", 30), ("y", 30), ("z", 60)] {
        let Some(Standing::Held { remaining, .. }) = store
            .look(&Args {
                ns,
                ..args(ME, 0, 0)
            })
            .unwrap()
        else {
            panic!("{ns} is held")
        };
        assert!(
            remaining <= Duration::from_secs(left) && remaining > Duration::from_secs(left - 5)
        );
    }
    // Both leaders are registered with their leases; nobody else.
    assert_eq!(
        store.list(&args(ME, 0, 0)).unwrap(),
        [ME.parse::<Uuid>().unwrap()]
    );
    assert_eq!(
        store
            .list(&Args {
                ns: "y",
                ..args(ME, 0, 0)
            })
            .unwrap(),
        [OTHER.parse::<Uuid>().unwrap()]
    );
    assert!(
        store
            .list(&Args {
                ns: "z",
                ..args(ME, 0, 0)
            })
            .unwrap()
            .is_empty()
    );
    let sights = store.look_all(&asks).unwrap();
    assert_eq!(sights.len(), 3);
}

/// S2: what is judged and what is written late in a transaction is judged and written by then.
fn the_clock_goes_on_inside_a_transaction<S: Tested>() {
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, SECOND / 5);
    store
        .in_transaction(|store| {
            store.sighting(S::SQL.look, &args(ME, 7, 0))?;
            thread::sleep(Duration::from_millis(300));
            let me = args(ME, 7, SECOND);
            assert!(matches!(store.look(&me)?, Some(Standing::Lapsed { .. })));
            assert!(matches!(
                store.lock(&me)?,
                Lock::Taken(Standing::Lapsed { .. })
            ));
            assert!(!store.glance(&me, Expected::Nothing)?.renewed);
            assert!(matches!(
                store.glance(&me, Expected::Nothing)?.standing,
                Some(Standing::Lapsed { .. })
            ));
            assert!(
                store
                    .glance(&me, Expected::Nothing)?
                    .registration_left
                    .is_some_and(|left| left < 0)
            );
            assert!(!store.renew(&me)? && !store.release(&me)? && !store.fence(&me)?);
            assert!(store.list(&me)?.is_empty());
            store.beat(&me)?;
            assert_eq!(store.list(&me)?.len(), 1);
            let next = args(ME, 8, SECOND);
            store.take(&next, Term::from_stored(7).unwrap())?;
            let Some(Standing::Held { remaining, .. }) = store.look(&next)? else {
                panic!("it is held")
            };
            assert!(remaining > Duration::from_millis(700), "{remaining:?}");
            let history = store.tenure_rows(&Args { expire: 2, ..next })?;
            let (began, ended) = (history[0].2, history[1].3.expect("an end"));
            assert!(began > ended, "the lapse came before the next tenure");
            assert_eq!(history[1].4.as_deref(), Some("expired"));
            Ok(())
        })
        .unwrap();
}

fn a_locked_row_is_found_busy_without_a_wait<S: Tested>() {
    let fresh = Fresh::new::<S>();
    let (store, other) = (&mut fresh.open::<S>(), &mut fresh.open::<S>());
    lead(store, 60 * SECOND);
    store
        .in_transaction(|store| {
            assert!(matches!(store.lock(&args(ME, 7, 0))?, Lock::Taken(_)));
            let began = std::time::Instant::now();
            let _ = other.batch_execute("PRAGMA busy_timeout = 1");
            let busy = other.in_transaction(|other| other.lock(&args(ME, 7, 0)));
            // Where the lock is the whole file's, even the transaction does not begin.
            assert!(
                matches!(busy, Ok(Lock::Busy)) || busy.is_err_and(|error| error.is_retryable())
            );
            let asks = [ask("x", ME, 7)];
            assert!(
                other.renew_all(&asks).is_ok_and(|all| all.is_empty())
                    || S::PATIENCE > Duration::from_secs(2)
            );
            assert!(
                began.elapsed() < Duration::from_secs(1),
                "{:?}",
                began.elapsed()
            );
            Ok(())
        })
        .unwrap();
    assert!(matches!(
        other.lock(&Args {
            ns: "none",
            ..args(ME, 7, 0)
        }),
        Ok(Lock::Absent | Lock::Taken(_))
    ));
}

/// A process that is stopped, or cut off, between two statements. SQLite has no such thing: the
/// system gives up the lock of a process that died, and one that is stopped keeps it.
fn a_client_that_stops_inside_its_transaction_loses_the_row<S: Tested>() {
    if S::PATIENCE > Duration::from_secs(2) {
        return;
    }
    let mut fresh = Fresh::new::<S>();
    fresh.opening.statement_timeout = Duration::from_secs(1);
    let (store, other) = (&mut fresh.open::<S>(), &mut fresh.open::<S>());
    lead(store, 60 * SECOND);
    let stopped = store.in_transaction(|store| {
        assert!(matches!(store.lock(&args(ME, 7, 0))?, Lock::Taken(_)));
        let freed = || matches!(other.lock(&args(ME, 7, 0)), Ok(Lock::Taken(_)));
        // On a server whose timer counts whole seconds, and on PostgreSQL up to 5 in a
        // transaction that the call began by itself.
        support::wait_until(Duration::from_secs(20), "the row is free", freed);
        Ok(store.renew(&args(ME, 7, SECOND))?)
    });
    assert!(stopped.is_err_and(|error| error.is_retryable()));
}

fn the_end_of_a_tenure_is_written_once<S: Tested>() {
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, 60 * SECOND);
    let end = |text| Args {
        text,
        ..args(ME, 7, 1)
    };
    store.execute(S::SQL.end_tenure, &end("resigned")).unwrap();
    let before = store.tenure_rows(&end("")).unwrap();
    thread::sleep(Duration::from_millis(5));
    store
        .execute(S::SQL.end_tenure, &end("superseded"))
        .unwrap();
    store.execute(S::SQL.end_tenure_at_lapse, &end("")).unwrap();
    assert_eq!(store.tenure_rows(&end("")).unwrap(), before);
}

fn a_registration_is_refreshed_and_not_only_kept<S: Tested>() {
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    lead(store, 2 * SECOND);
    let expires = |store: &mut S| store.candidate_rows(&args(ME, 7, 0)).unwrap()[0].3.unwrap();
    let mut last = expires(store);
    thread::sleep(Duration::from_millis(5));
    let me = args(ME, 7, 60 * SECOND);
    type Act<S> = fn(&mut S, &Args<'_>);
    let acts: [Act<S>; 4] = [
        |store, me| assert!(!store.beat(me).unwrap()),
        |store, me| {
            // Where the look does not renew, the call beats.
            if !store.glance(me, Expected::Nothing).unwrap().renewed {
                store.beat(me).unwrap();
            }
        },
        |store, me| drop(store.renew_all(&[ask("x", me.me, me.term)]).unwrap()),
        |store, me| {
            store
                .beat_all(&[&Ask {
                    expire: 90 * SECOND,
                    ..ask("x", me.me, me.term)
                }])
                .unwrap()
        },
    ];
    for act in acts {
        act(store, &me);
        let now = expires(store);
        assert_ne!(now, last);
        last = now;
        thread::sleep(Duration::from_millis(5));
    }
}

fn what_ended_long_ago_is_found_near_a_place_and_forgotten<S: Tested>() {
    const DAY: i64 = 86_400 * SECOND;
    let fresh = Fresh::new::<S>();
    let store = &mut fresh.open::<S>();
    let id = |n: u128| Uuid::from_u128(n).to_string();
    let registered = [
        ("a", 1, -2 * DAY),
        ("a", 2, -DAY + 5 * SECOND),
        ("a", 3, 60 * SECOND),
        ("a", 4, -3 * DAY),
        ("b c", 1, -2 * DAY),
    ];
    for (ns, n, left) in registered {
        let (me, args) = (id(n), args(ME, 0, 0));
        let one = Args {
            ns,
            me: &me,
            ..args
        };
        assert!(store.beat(&one).unwrap(), "it is new");
        assert!(!store.beat(&one).unwrap(), "it is known");
        let at = match std::any::type_name::<S>() {
            pg if pg.contains("PgConn") => format!("now() + {left} * interval '1 microsecond'"),
            my if my.contains("Mysql") => format!("UTC_TIMESTAMP(6) + INTERVAL {left} MICROSECOND"),
            _ => format!(
                "strftime('%Y-%m-%d %H:%M:%f000', 'now', '{} seconds')",
                left / SECOND
            ),
        };
        store
            .batch_execute(&format!(
                "UPDATE gemstone_election_candidate SET expires_at = {at}
                 WHERE ns = '{ns}' AND candidate_id = '{me}'"
            ))
            .unwrap();
    }
    let mut near = |ns: &str, from: u128, rows: i64| {
        let from = id(from);
        let args = Args {
            ns,
            text: &from,
            expire: rows,
            ..args(ME, 0, 0)
        };
        let dead = store.dead_near(&args).unwrap();
        let mut dead: Vec<String> = dead
            .into_iter()
            .map(|(ns, me)| format!("{} of {ns}", me.trim_start_matches(['0', '-'])))
            .collect();
        dead.sort();
        dead
    };
    assert_eq!(near("a", 0, 16), ["1 of a", "1 of b c", "4 of a"]);
    assert_eq!(near("a", 2, 16), ["1 of b c", "4 of a"]);
    assert_eq!(near("a", 0, 3), ["1 of a"]);
    assert_eq!(near("a", 5, 16), ["1 of b c"]);
    assert!(near("b c", 2, 16).is_empty());

    for n in 1..=4 {
        let me = id(n);
        store
            .forget(&Args {
                ns: "a",
                me: &me,
                ..args(ME, 0, 0)
            })
            .unwrap();
    }
    let left = store.candidate_rows(&Args {
        ns: "a",
        ..args(ME, 0, 0)
    });
    let left: Vec<Option<String>> = left.unwrap().into_iter().map(|row| row.1).collect();
    assert_eq!(left, [Some(id(2)), Some(id(3))]);
}

#[test]
fn a_lease_with_nothing_left_is_over() {
    let row = |left| (Some(ME.to_owned()), 1, Some(left), 0, None);
    assert!(matches!(
        standing(&row(0), "x"),
        Ok(Standing::Lapsed { .. })
    ));
    assert!(matches!(
        standing(&row(-1), "x"),
        Ok(Standing::Lapsed { .. })
    ));
    assert!(matches!(standing(&row(1), "x"), Ok(Standing::Held { .. })));
}

//! Questions, and what they answer to people and to programs.

use std::path::Path;

use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::running::{json, leasehold, said};

on_every_database![
    one_command_for_each_function,
    a_row_that_cannot_be_read_keeps_nobody_from_being_unregistered,
    a_question_creates_nothing,
    the_status_shows_who_leads_and_who_does_not,
    the_history_is_told_in_three_ways,
    a_check_says_what_to_do,
    the_printed_sql_makes_the_tables,
];

fn one_command_for_each_function<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (a, b) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
    let say = |args: &[&str], id: &str| {
        let (code, out, err) = said(
            leasehold(&fresh.url)
                .args(args)
                .args(["--ns", "x"])
                .env("LEASEHOLD_CANDIDATE", id),
        );
        assert!(err.is_empty(), "{err}");
        (code, out.trim().to_owned())
    };
    assert_eq!(say(&["leader"], ""), (1, String::new()));
    assert_eq!(say(&["elect"], &a), (0, a.clone()));
    assert_eq!(say(&["elect"], &b), (1, a.clone()));
    assert_eq!(say(&["is-leader"], &a), (0, "yes".into()));
    assert_eq!(say(&["is-leader"], &b), (1, "no".into()));
    assert_eq!(say(&["leader"], ""), (0, a.clone()));
    assert_eq!(say(&["register"], &b).0, 0);
    assert_eq!(say(&["heartbeat"], &b).0, 0);
    let mut both = [a.clone(), b.clone()];
    both.sort();
    assert_eq!(say(&["candidates"], ""), (0, both.join("\n")));
    let gone = [
        "which it led until now",
        "Nobody of that id in \"x\"",
        "which it did not lead",
    ];
    for (id, told) in [&a, &a, &b].into_iter().zip(gone) {
        let (code, out) = say(&["unregister"], id);
        assert!(code == 0 && out.contains(told), "{out}");
    }
    assert_eq!(say(&["leader"], ""), (1, String::new()));
    assert_eq!(say(&["elect"], &b), (0, b.clone()));
    let leader = json(leasehold(&fresh.url).args(["leader", "--ns", "x", "--json"]));
    assert_eq!(
        (
            leader["leader"]["candidate_id"].as_str(),
            leader["leader"]["term"].as_i64()
        ),
        (Some(&*b), Some(2))
    );
    assert_eq!(
        json(leasehold(&fresh.url).args(["leader", "--json"])),
        serde_json::json!({ "leader": null })
    );
}

fn a_row_that_cannot_be_read_keeps_nobody_from_being_unregistered<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (leads, follows) = (Uuid::new_v4(), Uuid::new_v4());
    for id in [leads, follows] {
        assert_eq!(fresh.election().elect(id, "x").unwrap(), leads);
    }
    let at = C::instant(60);
    fresh.connect::<C>().run(&format!(
        "INSERT INTO gemstone_election_candidate VALUES ('x', 'of another program', {at}, {at})"
    ));
    for id in [leads, follows] {
        let args = ["unregister", "--ns", "x", "--id", &id.to_string()];
        let (code, out, err) = said(leasehold(&fresh.url).args(args));
        assert!(code == 0 && out.starts_with("Removed"), "{out}{err}");
    }
    assert_eq!(fresh.election().leader("x").unwrap(), None);
}

fn a_question_creates_nothing<C: Database>() {
    let fresh = Fresh::without_tables::<C>();
    for args in [
        ["leader"].as_slice(),
        &["status"],
        &["history"],
        &["candidates"],
    ] {
        let (code, out, err) = said(leasehold(&fresh.url).args(args));
        assert_eq!((code, out.as_str()), (3, ""), "{args:?}");
        assert!(err.contains("leasehold migrate"), "{err}");
    }
    if let Some(file) = fresh.url.strip_prefix("sqlite:") {
        assert!(!Path::new(file).exists());
    }
}

fn the_status_shows_who_leads_and_who_does_not<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    let (leader, follower, stale) = (Uuid::new_v4(), Uuid::new_v4(), Uuid::new_v4());
    election.elect(leader, "jobs").unwrap();
    election.elect(follower, "jobs").unwrap();
    election.register_candidate(stale, "jobs").unwrap();
    fresh.connect::<C>().run(&format!(
        "UPDATE gemstone_election_candidate SET expires_at = {} WHERE candidate_id = '{stale}'",
        C::instant(-60)
    ));
    election.elect(leader, "other").unwrap();
    let (code, table, err) = said(leasehold(&fresh.url).arg("status"));
    assert_eq!((code, err.as_str()), (0, ""));
    let rows: Vec<Vec<&str>> = table
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    let ids = [leader, follower, stale, leader].map(|id| id.to_string());
    assert_eq!(rows.len(), 5, "{table}");
    assert_eq!(rows[1][..4], ["jobs", &ids[0], "leader", "1"]);
    assert_eq!(rows[2][..4], ["jobs", &ids[1], "follower", "-"]);
    assert_eq!(rows[3][..5], ["jobs", &ids[2], "stale", "-", "over"]);
    assert_eq!(rows[4][..4], ["other", &ids[3], "leader", "1"]);
    assert!(!table.contains('\x1b'), "no colour in a pipe");
    let seen = json(leasehold(&fresh.url).args(["status", "--ns", "jobs", "--json"]));
    let jobs = &seen["namespaces"][0];
    assert_eq!(jobs["leader"]["candidate_id"], ids[0].as_str());
    let live = jobs["candidates"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["live"] == true);
    assert_eq!(live.count(), 2);
}

fn the_history_is_told_in_three_ways<C: Database>() {
    let fresh = Fresh::new::<C>();
    let election = fresh.election();
    let id = Uuid::new_v4();
    for _ in 0..60 {
        election.elect(id, "a<b&\"c").unwrap();
        election.unregister_candidate(id, "a<b&\"c").unwrap();
    }
    election.elect(id, "a<b&\"c").unwrap();
    let history = |args: &[&str]| {
        said(
            leasehold(&fresh.url)
                .args(["history", "--ns", "a<b&\"c"])
                .args(args),
        )
        .1
    };
    let text = history(&["--limit", "5"]);
    let first: Vec<String> = text
        .lines()
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(first, ["TERM", "57", "58", "59", "60", "61"]);
    assert!(text.lines().last().unwrap().contains(" leads"), "{text}");
    let parsed: serde_json::Value = serde_json::from_str(&history(&["--json"])).unwrap();
    assert_eq!(parsed["tenures"].as_array().unwrap().len(), 61);
    assert_eq!(parsed["tenures"][60]["end"], "leads");
    assert!(
        parsed["tenures"][60]["ended_at"].is_null() && parsed["tenures"][0]["ended_at"].is_string()
    );
    let picture = history(&["--svg", "-"]);
    for term in 1..=61 {
        assert!(
            picture.contains(&format!(">{term}</text>")),
            "term {term} has no label"
        );
    }
    assert!(picture.contains("a&lt;b&amp;") && !picture.contains("a<b"));
    let none = said(leasehold(&fresh.url).args(["history", "--ns", "none", "--svg", "-"]));
    assert!(none.0 == 0 && none.1.contains("Nobody has led"), "{none:?}");
}

fn a_check_says_what_to_do<C: Database>() {
    let fresh = Fresh::new::<C>();
    let (code, text, err) = said(leasehold(&fresh.url).arg("check"));
    assert_eq!((code, err.as_str()), (0, ""), "{text}");
    for name in ["schema", "clock", "time zone", "isolation", "server"] {
        assert!(text.contains(name), "{name}: {text}");
    }
    fresh
        .connect::<C>()
        .run("DROP TABLE gemstone_election_tenure");
    let found = json(leasehold(&fresh.url).args(["check", "--json"]));
    let bad: Vec<_> = found["findings"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|one| one["verdict"] == "bad")
        .collect();
    assert_eq!(bad.len(), 1, "{found:#}");
    assert!(
        bad[0]["advice"]
            .as_str()
            .unwrap()
            .contains("leasehold migrate")
    );
    assert_eq!(said(leasehold(&fresh.url).arg("check")).0, 1);
}

fn the_printed_sql_makes_the_tables<C: Database>() {
    let fresh = Fresh::without_tables::<C>();
    // Printed without connecting: to a database that is not there, too.
    let elsewhere = fresh.url.replace("127.0.0.1", "no.such.host");
    let (code, sql, err) = said(leasehold(&elsewhere).args(["migrate", "--print"]));
    assert_eq!((code, err.as_str()), (0, ""));
    fresh.connect::<C>().run(&sql);
    assert_eq!(said(leasehold(&fresh.url).arg("leader")).0, 1);
    assert_eq!(said(leasehold(&fresh.url).arg("migrate")).0, 0);
}

/// Also when there is nothing to write, since the database is gone too.
#[cfg(feature = "sqlite")]
#[test]
fn a_watched_status_ends_when_nobody_reads_it() {
    use std::io::{BufRead, BufReader};
    use std::process::Stdio;

    let fresh = Fresh::new::<diesel::sqlite::SqliteConnection>();
    let mut command = leasehold(&fresh.url);
    command.args(["status", "--watch", "--json", "--interval", "100ms"]);
    let mut watch = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    lines.next().expect("a look").unwrap();
    fresh
        .connect::<diesel::sqlite::SqliteConnection>()
        .run("DROP TABLE gemstone_election_leader");
    drop(lines);
    let mut status = None;
    crate::support::wait_until(std::time::Duration::from_secs(30), "it ends", || {
        status = watch.try_wait().unwrap();
        status.is_some()
    });
    assert!(status.unwrap().success());
}

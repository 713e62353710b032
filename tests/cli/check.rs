//! `leasehold check`: what it finds, and what it says to do.

use serde_json::Value;

use crate::database::{Database, Fresh};
use crate::running::{json, leasehold};

on_every_database![nothing_is_found_where_all_is_well];

/// The findings of one kind: verdict, what was found, what to do.
fn findings(url: &str, more: &[&str], name: &str) -> Vec<[String; 3]> {
    let seen = json(leasehold(url).args(["check", "--json"]).args(more));
    let found = seen["findings"].as_array().expect("findings").clone();
    let text = |one: &Value, key: &str| one[key].as_str().unwrap_or_default().to_owned();
    let named = found.iter().filter(|one| one["check"] == name);
    named
        .map(|one| ["verdict", "found", "advice"].map(|key| text(one, key)))
        .collect()
}

/// The only finding of that kind.
#[track_caller]
fn finding(url: &str, more: &[&str], name: &str) -> [String; 3] {
    let mut found = findings(url, more, name);
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found.remove(0)
}

/// The servers of the tests forgo durability, which is told; nothing else is.
fn nothing_is_found_where_all_is_well<C: Database>() {
    let fresh = Fresh::new::<C>();
    let seen = json(leasehold(&fresh.url).args(["check", "--json"]));
    let found = seen["findings"].as_array().expect("findings");
    let told: Vec<&Value> = found
        .iter()
        .filter(|one| one["verdict"] != "good")
        .collect();
    assert!(
        told.iter().all(|one| one["check"] == "durability"),
        "{seen:#}"
    );
    let advised = found.iter().filter(|one| !one["advice"].is_null()).count();
    assert_eq!(advised, told.len(), "{seen:#}");
}

#[cfg(feature = "sqlite")]
mod of_sqlite {
    use std::os::unix::fs::FileExt;
    use std::process::Command;

    use super::*;
    use crate::running::said;

    type Any = diesel::sqlite::SqliteConnection;

    #[test]
    fn a_file_that_cannot_be_written_is_found() {
        let fresh = Fresh::new::<Any>();
        let path = fresh.url.strip_prefix("sqlite:").unwrap();
        // The version of SQLite that it takes to write the file, at this place of its head: one that does not exist. Modes
        // would not do, since root may write everything.
        let file = std::fs::File::options().write(true).open(path).unwrap();
        file.write_all_at(&[3], 18).unwrap();
        let (code, _, err) = said(leasehold(&fresh.url).arg("check"));
        assert_eq!(code, 3, "{err}");
        assert!(err.contains("readonly database"), "{err}");
        assert!(
            err.contains("Let this user write the file and the directory"),
            "{err}"
        );
    }

    /// strace gives the answer that the kernel would give of NFS.
    #[test]
    fn a_file_on_a_network_file_system_is_found() {
        let fresh = Fresh::new::<Any>();
        let mut command = Command::new("strace");
        command
            .args(["-f", "-qq", "-o", "/dev/null", "-e", "trace=fstatfs"])
            .args(["-e", "inject=fstatfs:poke_exit=@arg2=6969000000000000"])
            .args([env!("CARGO_BIN_EXE_leasehold"), "check", "--json"])
            .env("LEASEHOLD_DATABASE_URL", &fresh.url);
        let (code, text, err) = said(&mut command);
        assert_eq!(code, 1, "{text}{err}");
        assert!(text.contains("the file is on NFS"), "{text}{err}");
        assert!(text.contains("move it to a local disk"), "{text}");
        assert_eq!(finding(&fresh.url, &[], "disk")[0], "good");
    }
}

#[cfg(feature = "mysql")]
mod of_mariadb {
    use super::*;
    use crate::support::MariaDb;

    #[test]
    fn a_missing_privilege_is_found() {
        let server = MariaDb::shared();
        let fresh = Fresh::new::<diesel::mysql::MysqlConnection>();
        let database = fresh.url.rsplit_once('/').unwrap().1;
        let (user, password) = (format!("reader_{database}"), server.password());
        server.exec(&format!(
            "CREATE USER {user}@'%' IDENTIFIED BY '{password}';
             GRANT SELECT ON {database}.* TO {user}@'%';
             GRANT INSERT, UPDATE ON {database}.gemstone_election_leader TO {user}@'%'"
        ));
        let url = fresh.url.replace("//leasehold:", &format!("//{user}:"));
        let [verdict, found, advice] = finding(&url, &[], "privileges");
        assert_eq!(verdict, "bad");
        let first = "refuses INSERT on gemstone_election_candidate, UPDATE on";
        assert!(found.contains(first), "{found}");
        assert!(!found.contains("on gemstone_election_leader"), "{found}");
        assert!(advice.contains("grant"), "{advice}");
        server.exec(&format!("DROP USER {user}@'%'"));
    }
}

#[cfg(feature = "postgres")]
mod of_postgres {
    use super::*;
    use crate::running::said;
    use crate::support::{PgBouncer, Postgres};

    #[test]
    fn a_missing_privilege_is_found() {
        let server = Postgres::shared();
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        let database = fresh.url.rsplit_once('/').unwrap().1;
        let (user, password) = (format!("reader_{database}"), server.password());
        server.exec(&format!("CREATE ROLE {user} LOGIN PASSWORD '{password}'"));
        server.exec_in(
            database,
            &format!(
                "GRANT SELECT, INSERT, UPDATE, DELETE ON gemstone_election_candidate, gemstone_election_tenure TO {user};
                 GRANT SELECT, INSERT ON gemstone_election_leader TO {user}"
            ),
        );
        let url = fresh.url.replace("//leasehold:", &format!("//{user}:"));
        let [verdict, found, advice] = finding(&url, &[], "privileges");
        assert_eq!(verdict, "bad");
        let all = "refuses UPDATE on gemstone_election_leader: ";
        assert!(found.contains(all), "{found}");
        assert!(advice.contains("grant"), "{advice}");
        assert_eq!(said(leasehold(&url).arg("check")).0, 1);
        server.exec_in(
            database,
            &format!("GRANT UPDATE ON gemstone_election_leader TO {user}"),
        );
        assert_eq!(finding(&url, &[], "privileges")[0], "good");
        server.exec_in(database, &format!("DROP OWNED BY {user}; DROP ROLE {user}"));
    }

    /// The database's clock is replaced by a function of the same name, which this one database finds first.
    #[test]
    fn a_clock_that_is_off_is_found() {
        let server = Postgres::shared();
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        let database = fresh.url.rsplit_once('/').unwrap().1;
        server.exec_in(
            database,
            &format!(
                "CREATE SCHEMA wrong; GRANT USAGE ON SCHEMA wrong TO leasehold;
                 ALTER DATABASE {database} SET search_path = wrong, pg_catalog, public"
            ),
        );
        for (theirs, word) in [("-180", "ahead of"), ("+180", "behind")] {
            server.exec_in(
                database,
                &format!(
                    "CREATE OR REPLACE FUNCTION wrong.clock_timestamp() RETURNS timestamptz LANGUAGE sql
                     AS $$ SELECT pg_catalog.clock_timestamp() + interval '{theirs} seconds' $$"
                ),
            );
            let [verdict, found, advice] = finding(&fresh.url, &[], "clock");
            assert_eq!(verdict, "warn");
            // A question takes its time, on either side of three minutes.
            let about = found.contains("3 min 0 s") || found.contains("2 min 59 s");
            assert!(about && found.contains(word), "{found}");
            assert!(advice.contains("set both clocks by NTP"), "{advice}");
            assert_eq!(said(leasehold(&fresh.url).arg("check")).0, 0);
        }
    }

    #[test]
    fn who_may_not_create_the_tables_is_told_who_could() {
        let server = Postgres::shared();
        let fresh = Fresh::without_tables::<diesel::pg::PgConnection>();
        let database = fresh.url.rsplit_once('/').unwrap().1;
        let (user, password) = (format!("guest_{database}"), server.password());
        server.exec(&format!("CREATE ROLE {user} LOGIN PASSWORD '{password}'"));
        let url = fresh.url.replace("//leasehold:", &format!("//{user}:"));
        for args in [["migrate"].as_slice(), &["run", "--ns", "x", "--", "true"]] {
            let (code, _, err) = said(leasehold(&url).args(args));
            assert_eq!(code, 3, "{err}");
            assert!(err.contains("permission denied for schema"), "{err}");
            assert!(err.contains("`leasehold migrate --print`"), "{err}");
        }
        server.exec(&format!("DROP ROLE {user}"));
    }

    #[test]
    fn a_url_that_waits_for_a_dark_network_is_found() {
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        for (parameters, word) in [
            ("keepalives=0", "keepalives"),
            ("tcp_user_timeout=0", "tcp_user_timeout"),
            ("application_name=x&tcp_user_timeout=60000", "1 min 0 s"),
        ] {
            let url = format!("{}?{parameters}", fresh.url);
            let [verdict, found, advice] = finding(&url, &[], "network");
            assert_eq!(verdict, "warn");
            assert!(found.contains(word), "{found}");
            assert!(advice.contains("out of the URL"), "{advice}");
        }
        let url = format!("{}?tcp_user_timeout=5000&keepalives=1", fresh.url);
        assert!(findings(&url, &[], "network").is_empty());
    }

    /// Behind a pooler an election cannot set its own.
    #[test]
    fn a_limit_that_is_too_short_is_found() {
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        let database = fresh.url.rsplit_once('/').unwrap().1;
        Postgres::shared().exec(&format!(
            "ALTER DATABASE {database} SET statement_timeout = '1s';
             ALTER DATABASE {database} SET idle_session_timeout = '5s'"
        ));
        let told = |more: &[&str]| {
            let found = findings(&fresh.url, more, "timeout");
            let warned = found.iter().filter(|[verdict, ..]| verdict == "warn");
            warned
                .map(|[_, found, _]| found.clone())
                .collect::<Vec<_>>()
        };
        assert_eq!(told(&[]), ["idle_session_timeout is 5.0 s"]);
        let both = [
            "idle_session_timeout is 5.0 s",
            "statement_timeout is 1.0 s",
        ];
        assert_eq!(told(&["--pooler"]), both);
        assert!(told(&["--expire", "4s"]).is_empty());
    }

    /// Told of the pooler, everything works; not told, it says how.
    #[test]
    fn a_command_runs_behind_a_pooler() {
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        let pooler = PgBouncer::in_front_of(Postgres::shared());
        let url = pooler.url_of(&fresh.url);
        let script = "leasehold is-leader --pooler && leasehold status --pooler --json";
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_leasehold"));
        let mut command = leasehold(&url);
        command
            .args([
                "run", "-q", "--pooler", "--ns", "x", "--", "sh", "-c", script,
            ])
            .env(
                "PATH",
                format!("{}:/usr/bin:/bin", program.parent().unwrap().display()),
            );
        let (code, out, err) = said(&mut command);
        assert_eq!((code, err.as_str()), (0, ""), "{out}");
        assert!(
            out.starts_with("yes\n") && out.contains("\"term\": 1"),
            "{out}"
        );
        // The second of two finds what the first has left in the session.
        let asked = [(); 2].map(|()| said(leasehold(&url).arg("leader")));
        let (code, _, err) = &asked[1];
        assert_eq!(*code, 3, "{asked:?}");
        assert!(
            err.contains("There is a transaction pooler in between: give --pooler"),
            "{err}"
        );
    }

    #[test]
    fn a_transaction_pooler_is_found() {
        let fresh = Fresh::new::<diesel::pg::PgConnection>();
        let pooler = PgBouncer::in_front_of(Postgres::shared());
        let url = pooler.url_of(&fresh.url);
        let (code, text, err) = said(leasehold(&url).arg("check"));
        assert_eq!((code, err.as_str()), (1, ""), "{text}");
        let [verdict, found, advice] = finding(&url, &[], "pooler");
        assert_eq!(verdict, "bad");
        assert!(found.contains("PgBouncer in transaction mode"), "{found}");
        assert!(advice.contains("--pooler"), "{advice}");
        let (code, text, err) = said(leasehold(&url).args(["check", "--pooler"]));
        assert_eq!((code, err.as_str()), (0, ""), "{text}");
        assert_eq!(finding(&url, &["--pooler"], "pooler")[0], "good");
        assert_eq!(finding(&fresh.url, &[], "pooler")[0], "good");
    }
}

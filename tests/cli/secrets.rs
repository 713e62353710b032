//! F36: a password appears nowhere.

use std::process::Command;

use crate::running::{leasehold, said};

const SECRET: &str = "hunter2";

#[track_caller]
fn says_nothing(command: &mut Command, code: i32) -> String {
    let (ended, out, err) = said(command.env("RUST_BACKTRACE", "1"));
    assert_eq!(ended, code, "{command:?}: {out}{err}");
    let text = out + &err;
    assert!(!text.contains(SECRET), "{command:?}: {text}");
    text
}

#[test]
fn a_password_is_in_no_output() {
    let urls: [(&str, i32); 8] = [
        #[cfg(feature = "postgres")]
        ("postgres://u:hunter2@127.0.0.1:1/d", 3),
        #[cfg(not(feature = "postgres"))]
        ("postgres://u:hunter2@127.0.0.1:1/d", 2),
        #[cfg(feature = "mysql")]
        ("mysql://u:hunter2@127.0.0.1:1/d", 3),
        #[cfg(not(feature = "mysql"))]
        ("mysql://u:hunter2@127.0.0.1:1/d", 2),
        ("postgress://u:hunter2@h/d", 2),
        ("postgres://u:hun/hunter2@h/d", 2),
        ("hunter2", 2),
        ("mysql://u:hunter2@h", 2),
        ("", 2),
        ("sqlite:", 2),
    ];
    for (url, code) in urls {
        for command in ["leader", "status", "check", "history", "migrate"] {
            let text = says_nothing(leasehold(url).args([command]), code);
            assert!(
                text.starts_with("leasehold: ") && text.lines().count() == 2,
                "{text}"
            );
        }
        says_nothing(
            leasehold(url).args(["run", "--ns", "x", "--", "true"]),
            code,
        );
    }
}

#[test]
fn a_password_is_in_no_help_and_no_complaint() {
    let url = "postgres://u:hunter2@127.0.0.1:1/d";
    for args in [
        ["--help"].as_slice(),
        &["leader", "--help"],
        &["run", "--help"],
        &["man"],
        &["completions", "bash"],
    ] {
        says_nothing(leasehold(url).args(args), 0);
    }
    says_nothing(leasehold("").args(["leader", url]), 2);
    says_nothing(leasehold("").args(["leader", "--databse", url]), 2);
    says_nothing(leasehold("").arg(format!("--database={url}")), 2);
}

#[test]
fn a_password_in_an_argument_is_warned_of() {
    let code = if cfg!(feature = "postgres") { 3 } else { 2 };
    let typed = says_nothing(
        leasehold("").args(["leader", "--database", "postgres://u:hunter2@127.0.0.1:1/d"]),
        code,
    );
    assert!(typed.contains("LEASEHOLD_DATABASE_URL instead"), "{typed}");
    let quiet = says_nothing(
        leasehold("").args(["leader", "--database", "postgres://u@127.0.0.1:1/d"]),
        code,
    );
    assert!(!quiet.contains("instead"), "{quiet}");
}

#[cfg(feature = "postgres")]
#[test]
fn a_wrong_password_is_not_repeated() {
    let server = crate::support::Postgres::shared();
    let url = server.url().replace(server.password(), SECRET);
    says_nothing(leasehold(&url).arg("status"), 3);
}

#[cfg(feature = "mysql")]
#[test]
fn a_wrong_password_is_not_repeated_by_mariadb() {
    let server = crate::support::MariaDb::shared();
    let url = server.url().replace(server.password(), SECRET);
    says_nothing(leasehold(&url).arg("status"), 3);
}

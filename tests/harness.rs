//! The support of the other tests does what they rely on.

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use support::child::{self, Role};
use support::process::{self, Pid};
use support::{MariaDb, Postgres, Proxy, wait_until};

// Long enough for two servers to start on a machine that has other work.
const SOON: Duration = Duration::from_secs(120);

#[test]
fn postgres_runs_sql_and_makes_databases() {
    let postgres = Postgres::shared();
    let first = postgres.fresh_database();
    let second = postgres.fresh_database();
    assert_ne!(first, second);
    assert_eq!(
        postgres.exec("SELECT 1, 'två', octet_length('å')"),
        "1|två|2"
    );
    assert_eq!(postgres.exec_in("fresh_1", "SHOW fsync"), "off");
}

#[test]
fn mariadb_runs_sql_and_makes_databases() {
    let mariadb = MariaDb::shared();
    assert_ne!(mariadb.fresh_database(), mariadb.fresh_database());
    assert_eq!(mariadb.exec("SELECT 1, 'två', length('å')"), "1\ttvå\t2");
    assert_eq!(mariadb.exec("SELECT @@max_connections"), "300");
}

#[test]
fn options_reach_the_configuration() {
    let options = support::Options {
        fsync: true,
        extra: &["timezone = 'Asia/Kathmandu'"],
    };
    let postgres = Postgres::start_with(options);
    assert_eq!(
        postgres.exec("SHOW fsync; SHOW timezone"),
        "on\nAsia/Kathmandu"
    );

    let options = support::Options {
        fsync: true,
        extra: &["innodb_lock_wait_timeout=7"],
    };
    let mariadb = MariaDb::start_with(options);
    let shown = mariadb.exec("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_lock_wait_timeout");
    assert_eq!(shown, "1\t7");
}

#[test]
fn postgres_keeps_port_and_data_over_restart_and_crash() {
    let postgres = Postgres::start();
    postgres.exec("CREATE TABLE kept (n int)");
    let (pid, address) = (postgres.pid(), postgres.address());
    postgres.restart();
    assert!(!process::alive(pid));
    postgres.exec("INSERT INTO kept VALUES (1)");
    let pid = postgres.pid();
    postgres.kill();
    assert!(!process::alive(pid));
    assert_refused(address);
    postgres.start_again();
    assert_eq!(postgres.address(), address);
    assert_eq!(postgres.exec("SELECT n FROM kept"), "1");
    dropped_without_trace(postgres.pid(), postgres.dir().to_owned(), postgres);
}

#[test]
fn mariadb_keeps_port_and_data_over_restart_and_crash() {
    let mariadb = MariaDb::start();
    mariadb.exec_in("leasehold", "CREATE TABLE kept (n int) ENGINE=InnoDB");
    let (pid, address) = (mariadb.pid(), mariadb.address());
    mariadb.restart();
    assert!(!process::alive(pid));
    mariadb.exec_in("leasehold", "INSERT INTO kept VALUES (1)");
    mariadb.kill();
    assert_refused(address);
    mariadb.start_again();
    assert_eq!(mariadb.address(), address);
    assert_eq!(mariadb.exec_in("leasehold", "SELECT n FROM kept"), "1");
    dropped_without_trace(mariadb.pid(), mariadb.dir().to_owned(), mariadb);
}

fn dropped_without_trace<S>(pid: Pid, dir: PathBuf, server: S) {
    drop(server);
    assert!(!process::alive(pid));
    assert!(!dir.exists());
}

#[test]
fn a_server_ends_when_its_test_panics() {
    let mut pid = None;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        let postgres = Postgres::start();
        pid = Some(postgres.pid());
        panic!("on purpose");
    }));
    assert!(panicked.is_err());
    assert!(!process::alive(pid.expect("it started")));
}

#[test]
fn a_server_stopped_by_a_signal_can_still_be_dropped() {
    let postgres = Postgres::start();
    let pid = postgres.pid();
    process::pause(pid);
    wait_until(SOON, "it stops", || process::is_paused(pid));
    dropped_without_trace(pid, postgres.dir().to_owned(), postgres);
}

#[test]
fn role_server_owner() {
    let Some(parent) = child::role("role_server_owner") else {
        return;
    };
    let postgres = Postgres::shared();
    let mariadb = MariaDb::shared();
    parent.say(format!("{} {}", postgres.pid(), postgres.dir().display()));
    parent.say(format!("{} {}", mariadb.pid(), mariadb.dir().display()));
    match parent.hear().as_str() {
        "return" => {}
        "crash the server" => postgres.kill(),
        _ => parent.wait_for_the_end(),
    }
}

fn server_owner() -> (Role, Vec<(Pid, PathBuf)>) {
    let role = Role::spawn(&mut child::in_child("role_server_owner"));
    let mut servers = Vec::new();
    for _ in 0..2 {
        let line = role.line(SOON);
        let (pid, dir) = line.split_once(' ').expect("pid and directory");
        let pid = process::parse(pid).expect("a pid");
        assert!(process::alive(pid));
        servers.push((pid, Path::new(dir).to_owned()));
    }
    (role, servers)
}

fn wait_for_the_end_of(servers: &[(Pid, PathBuf)]) {
    for (pid, dir) in servers {
        wait_until(SOON, "the server ends", || !process::alive(*pid));
        wait_until(SOON, "the directory goes", || !dir.exists());
    }
}

#[test]
fn shared_servers_end_with_the_process() {
    let (mut role, servers) = server_owner();
    role.tell("return");
    assert!(role.wait(SOON).success());
    wait_for_the_end_of(&servers);
}

#[test]
fn servers_end_when_the_process_is_killed() {
    let (mut role, servers) = server_owner();
    role.kill();
    wait_for_the_end_of(&servers);
}

#[test]
fn a_crashed_server_leaves_no_shared_memory() {
    let (mut role, servers) = server_owner();
    let (pid, dir) = &servers[0];
    let lock = std::fs::read_to_string(dir.join("data/postmaster.pid")).expect("it runs");
    let line = lock.lines().nth(6).expect("seven lines");
    let segment = line.split_whitespace().last().expect("key and id");
    let listed = || {
        let table = std::fs::read_to_string("/proc/sysvipc/shm").expect("System V segments");
        let mut rows = table.lines().map(str::split_whitespace);
        rows.any(|mut fields| fields.nth(1) == Some(segment))
    };
    assert!(listed(), "segment {segment} of {pid}");
    role.tell("crash the server");
    role.wait(SOON);
    wait_for_the_end_of(&servers);
    assert!(!listed());
}

#[test]
fn role_echo() {
    let Some(parent) = child::role("role_echo") else {
        return;
    };
    loop {
        let line = parent.hear();
        parent.say(line);
    }
}

#[test]
fn roles_talk_pause_and_die() {
    let mut role = Role::spawn(&mut child::in_child("role_echo"));
    role.tell("hello");
    assert_eq!(role.line(SOON), "hello");
    role.pause();
    role.tell("again");
    assert_eq!(role.try_line(Duration::from_millis(200)), None);
    role.resume();
    assert_eq!(role.line(SOON), "again");
    let pid = role.pid();
    role.kill();
    assert!(!process::alive(pid));
    assert!(role.rest().is_empty());
}

#[test]
#[should_panic(expected = "no test plays this role")]
fn an_unknown_role_is_an_error() {
    Role::spawn(&mut child::in_child("role_nobody"));
}

#[test]
#[should_panic(expected = "not within 20ms: the impossible")]
fn waiting_in_vain_says_for_what() {
    wait_until(Duration::from_millis(20), "the impossible", || false);
}

/// A server that sends back what it gets, until the test process ends.
fn echo_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            thread::spawn(move || std::io::copy(&mut &stream, &mut &stream));
        }
    });
    address
}

fn connect(proxy: &Proxy) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", proxy.port())).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
    stream
}

fn exchange(mut stream: &TcpStream, message: &str) -> std::io::Result<String> {
    stream.write_all(message.as_bytes())?;
    receive(stream, message.len())
}

fn receive(mut stream: &TcpStream, count: usize) -> std::io::Result<String> {
    let mut buffer = vec![0; count];
    stream.read_exact(&mut buffer)?;
    Ok(String::from_utf8(buffer).expect("UTF-8"))
}

fn assert_refused(address: SocketAddr) {
    let error = TcpStream::connect(address).expect_err("nobody listens");
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
}

fn assert_silent(mut stream: &TcpStream) {
    let quiet = Duration::from_millis(200);
    stream.set_read_timeout(Some(quiet)).expect("a timeout");
    let error = stream.read(&mut [0]).expect_err("nothing comes");
    assert!(matches!(
        error.kind(),
        ErrorKind::WouldBlock | ErrorKind::TimedOut
    ));
    stream.set_read_timeout(Some(SOON)).expect("a timeout");
}

#[test]
fn a_proxy_passes_both_ways_and_counts() {
    let proxy = Proxy::start(echo_server());
    let first = connect(&proxy);
    assert_eq!(exchange(&first, "one").expect("an echo"), "one");
    let second = connect(&proxy);
    assert_eq!(exchange(&second, "two").expect("an echo"), "two");
    assert_eq!((proxy.accepted(), proxy.open()), (2, 2));
    drop(first);
    wait_until(SOON, "one is closed", || proxy.open() == 1);
    let large = "0123456789".repeat(100_000);
    let sender = second.try_clone().expect("a handle");
    let sent = large.clone();
    let writer = thread::spawn(move || (&sender).write_all(sent.as_bytes()));
    assert_eq!(receive(&second, large.len()).expect("an echo"), large);
    writer.join().expect("no panic").expect("all sent");
}

#[test]
fn a_proxy_passes_the_end_of_a_stream_on() {
    let proxy = Proxy::start(echo_server());
    let stream = connect(&proxy);
    exchange(&stream, "x").expect("an echo");
    stream.shutdown(std::net::Shutdown::Write).expect("open");
    assert_eq!((&stream).read(&mut [0]).expect("an orderly end"), 0);
}

#[test]
fn a_proxy_delays_replies_in_order_and_not_one_after_the_other() {
    let proxy = Proxy::start(echo_server());
    let stream = connect(&proxy);
    exchange(&stream, "x").expect("an echo");
    let delay = Duration::from_millis(300);
    proxy.delay_replies(delay);
    let begun = Instant::now();
    for message in ["a", "b", "c"] {
        (&stream).write_all(message.as_bytes()).expect("open");
        thread::sleep(Duration::from_millis(30));
    }
    assert_eq!(receive(&stream, 3).expect("an echo"), "abc");
    let took = begun.elapsed();
    assert!(took >= delay + Duration::from_millis(60), "{took:?}");
    assert!(took < delay * 3, "{took:?}");
    proxy.delay_replies(SOON * 10);
    (&stream).write_all(b"d").expect("open");
    assert_silent(&stream);
    proxy.heal();
    assert_eq!(receive(&stream, 1).expect("an echo"), "d");
}

#[test]
fn a_dark_proxy_says_nothing_and_loses_nothing() {
    let proxy = Proxy::start(echo_server());
    let old = connect(&proxy);
    exchange(&old, "x").expect("an echo");
    proxy.go_dark();
    (&old).write_all(b"old").expect("open");
    let new = connect(&proxy);
    (&new).write_all(b"new").expect("open");
    assert_silent(&old);
    assert_silent(&new);
    assert_eq!((proxy.accepted(), proxy.open()), (1, 1));
    proxy.heal();
    assert_eq!(receive(&old, 3).expect("an echo"), "old");
    assert_eq!(receive(&new, 3).expect("an echo"), "new");
}

#[test]
fn a_cut_proxy_resets_and_refuses() {
    let proxy = Proxy::start(echo_server());
    let stream = connect(&proxy);
    exchange(&stream, "x").expect("an echo");
    proxy.delay_replies(SOON * 10);
    (&stream).write_all(b"lost").expect("open");
    proxy.cut();
    assert_eq!(proxy.open(), 0);
    let error = receive(&stream, 4).expect_err("reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    let address = SocketAddr::from(([127, 0, 0, 1], proxy.port()));
    assert_refused(address);
    proxy.heal();
    assert_eq!(exchange(&connect(&proxy), "back").expect("an echo"), "back");
    drop(proxy);
    assert_refused(address);
}

#[test]
fn python_has_the_published_package() {
    let program = "
import sys, importlib.metadata, psycopg
import gemstone_utils.election
print(importlib.metadata.version('gemstone_utils'), *sys.argv[1:])";
    let printed = support::python::run(program, &["an argument"]);
    assert_eq!(printed, "0.4.1 an argument");
    let url = support::python::sqlalchemy_url(&Postgres::shared().url());
    let program = "
import sys, sqlalchemy
with sqlalchemy.create_engine(sys.argv[1]).connect() as connection:
    print(connection.scalar(sqlalchemy.text('SELECT current_user')))";
    assert_eq!(support::python::run(program, &[&url]), "leasehold");
}

#[cfg(feature = "postgres")]
mod with_postgres {
    use diesel::sql_types::Text;
    use diesel::{Connection, PgConnection, RunQueryDsl, dsl::sql};

    use super::*;

    fn user(connection: &mut PgConnection) -> diesel::QueryResult<String> {
        diesel::select(sql::<Text>("current_user::text")).get_result(connection)
    }

    #[test]
    fn diesel_connects_with_the_password_only() {
        let postgres = Postgres::start();
        let url = postgres.fresh_database();
        let mut connection = PgConnection::establish(&url).expect("the URL works");
        assert_eq!(user(&mut connection).expect("a row"), "leasehold");
        let wrong = url.replace(postgres.password(), "wrong");
        assert!(PgConnection::establish(&wrong).is_err());
        let mut by_socket =
            PgConnection::establish(&postgres.socket_url_of("fresh_1")).expect("the socket");
        assert_eq!(user(&mut by_socket).expect("a row"), "leasehold");
        assert_eq!(postgres.terminate_all_sessions(), 2);
        assert!(user(&mut connection).is_err());
    }

    #[test]
    fn diesel_goes_through_the_proxy() {
        let (proxy, url) = Proxy::in_front_of(&Postgres::shared().fresh_database());
        let mut connection = PgConnection::establish(&url).expect("the proxy passes");
        assert_eq!(user(&mut connection).expect("a row"), "leasehold");
        proxy.cut();
        assert!(user(&mut connection).is_err());
        assert!(PgConnection::establish(&url).is_err());
        proxy.heal();
        assert!(PgConnection::establish(&url).is_ok());
    }
}

#[cfg(feature = "mysql")]
mod with_mysql {
    use diesel::sql_types::Text;
    use diesel::{Connection, MysqlConnection, RunQueryDsl, dsl::sql};

    use super::*;

    fn user(connection: &mut MysqlConnection) -> diesel::QueryResult<String> {
        diesel::select(sql::<Text>("user()")).get_result(connection)
    }

    // MariaDB Connector/C CONC-821 (diesel#5091), met with libmariadb 3.3.19 of Debian 12 before its security update:
    // the first row of a prepared statement has empty texts. What else fails then, fails because of it.
    #[test]
    fn the_client_library_reads_texts_of_the_first_row() {
        let url = MariaDb::shared().fresh_database();
        let mut connection = MysqlConnection::establish(&url).expect("the URL works");
        let text: String = diesel::select(sql::<Text>("repeat('x', 36)"))
            .get_result(&mut connection)
            .expect("a row");
        assert_eq!(
            text,
            "x".repeat(36),
            "this libmariadb has the bug CONC-821: apt-get update && apt-get install libmariadb3"
        );
    }

    #[test]
    fn diesel_connects_with_the_password_only() {
        let mariadb = MariaDb::start();
        let url = mariadb.fresh_database();
        let mut connection = MysqlConnection::establish(&url).expect("the URL works");
        assert_eq!(user(&mut connection).expect("a row"), "leasehold@127.0.0.1");
        let wrong = url.replace(mariadb.password(), "wrong");
        assert!(MysqlConnection::establish(&wrong).is_err());
        let mut by_socket =
            MysqlConnection::establish(&mariadb.socket_url_of("fresh_1")).expect("the socket");
        assert_eq!(user(&mut by_socket).expect("a row"), "leasehold@localhost");
        assert_eq!(mariadb.terminate_all_sessions(), 2);
        assert!(user(&mut connection).is_err());
    }

    #[test]
    fn diesel_goes_through_the_proxy() {
        let (proxy, url) = Proxy::in_front_of(&MariaDb::shared().fresh_database());
        let mut connection = MysqlConnection::establish(&url).expect("the proxy passes");
        assert_eq!(user(&mut connection).expect("a row"), "leasehold@127.0.0.1");
        proxy.cut();
        assert!(user(&mut connection).is_err());
        assert!(MysqlConnection::establish(&url).is_err());
        proxy.heal();
        assert!(MysqlConnection::establish(&url).is_ok());
    }
}

//! The recipes of the README, run as they are written there: only URLs, paths and names are put in.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use uuid::Uuid;

use crate::database::{Database, Fresh};
use crate::running::{Mark, PATIENCE, Running, as_process_1, leasehold, said, say_plainly};
use crate::support::process::{self, Pid, Signal};
use crate::support::{Directory, Proxy, wait_until};

on_every_database![
    the_introduction,
    a_cron_job_once_in_a_fleet,
    a_systemd_unit,
    a_containers_entry_point,
    who_leads_as_a_health_check,
    taking_a_node_out_of_service,
];

const README: &str = include_str!("../../README.md");
const PROGRAM: &str = env!("CARGO_BIN_EXE_leasehold");

/// The code of that language under that heading.
#[track_caller]
fn recipe(heading: &str, language: &str) -> Vec<&'static str> {
    let (_, below) = README
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("the README has no heading {heading:?}"));
    let section = below.split("\n##").next().unwrap_or_default();
    let fence = format!("```{language}\n");
    let blocks = section.split(&fence).skip(1);
    let lines: Vec<&str> = blocks
        .flat_map(|block| block.split("\n```").next().unwrap_or_default().lines())
        .collect();
    assert!(!lines.is_empty(), "no {language} under {heading:?}");
    lines
}

/// Puts this place in for the one of the README, which must be there.
#[track_caller]
fn put(text: &str, theirs: &str, ours: &str) -> String {
    assert!(text.contains(theirs), "{theirs:?} is not in {text:?}");
    text.replace(theirs, ours)
}

/// A place for the files that the recipes name.
struct Place(Directory);

impl Place {
    fn new() -> Place {
        Place(Directory::new())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// A program of that name; gives its path.
    fn program(&self, name: &str, script: &str) -> String {
        let path = self.path(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path.to_str().expect("UTF-8").to_owned()
    }
}

/// A shell in which `leasehold` is in the search path, as after an installation.
fn shell(url: &str, line: &str) -> Command {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .env("LEASEHOLD_DATABASE_URL", url)
        .env("PATH", search_path());
    command
}

fn search_path() -> String {
    let bin = Path::new(PROGRAM).parent().expect("a directory").display();
    format!("{bin}:{}", std::env::var("PATH").expect("a search path"))
}

/// `leasehold` itself, where `running` is it or a shell around it.
fn program_of(running: &Running) -> Pid {
    let is_it = |pid: &Pid| {
        let running = fs::read_link(format!("/proc/{pid}/exe")).ok();
        running.is_some() && running == fs::canonicalize(PROGRAM).ok()
    };
    let mut pids = vec![running.pid()];
    pids.extend(process::children_of(running.pid()));
    pids.into_iter().find(is_it).expect("leasehold runs")
}

fn the_introduction<C: Database>() {
    let fresh = Fresh::new::<C>();
    let place = Place::new();
    let mailer = place.program("mailer", "leasehold is-leader --ns mailer; exit 7");
    let lines = recipe("## The program", "sh");
    let mut seen = Vec::new();
    for line in lines.iter().filter(|line| line.starts_with("leasehold ")) {
        let line = line.replace("/usr/bin/mailer", &mailer);
        let mut running = Running::start(&mut shell(&fresh.url, &line));
        if line.contains("--watch") {
            assert!(running.line().starts_with("NAMESPACE"), "{line}");
            process::send(program_of(&running), Signal::TERM);
            running.end(PATIENCE);
            continue;
        }
        let first = running.line();
        let (status, err) = running.end(PATIENCE);
        seen.push((first, status.code(), err));
    }
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!((seen[0].1, seen[0].2.as_str()), (Some(0), ""), "{seen:?}");
    assert_eq!(
        (seen[1].0.as_str(), seen[1].1),
        ("yes", Some(7)),
        "{seen:?}"
    );
}

/// A crontab, as cron reads it: what to set, and what to hand to the shell.
struct Crontab {
    environment: Vec<(String, String)>,
    command: String,
}

impl Crontab {
    fn parse(text: &str) -> Crontab {
        let mut environment = Vec::new();
        let mut command = None;
        for line in text.lines().filter(|line| !line.is_empty()) {
            match line.split_once('=') {
                Some((name, value)) if !name.contains(char::is_whitespace) => {
                    environment.push((name.to_owned(), value.to_owned()));
                }
                _ => {
                    let rest = (0..5).fold(line, |rest, _| {
                        let (_, rest) = rest.split_once(' ').expect("five fields of time");
                        rest.trim_start()
                    });
                    // cron would end the line there.
                    assert!(!rest.contains('%'), "{rest}");
                    assert!(command.replace(rest.to_owned()).is_none(), "one job");
                }
            }
        }
        let command = command.expect("a job");
        Crontab {
            environment,
            command,
        }
    }

    fn start(&self) -> Running {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &self.command])
            .env_clear()
            .envs([("HOME", "/"), ("LOGNAME", "root"), ("SHELL", "/bin/sh")])
            .env("PATH", "/usr/bin:/bin")
            .envs(self.environment.iter().map(|(name, value)| (name, value)));
        Running::start(&mut command)
    }
}

fn a_cron_job_once_in_a_fleet<C: Database>() {
    let fresh = Fresh::new::<C>();
    let place = Place::new();
    let ran = place.path("ran");
    let job = format!(r#"echo "$LEASEHOLD_TERM" >>{}; echo done"#, ran.display());
    let job = place.program("nightly-report", &job);
    let text = recipe("### A cron job, once in a fleet", "cron").join("\n");
    let text = put(&text, "postgres://cron:SECRET@db.example/app", &fresh.url);
    let text = put(&text, "/usr/local/bin/leasehold", PROGRAM);
    let crontab = Crontab::parse(&put(&text, "/usr/local/bin/nightly-report", &job));

    let mut fleet = vec![crontab.start(), crontab.start()];
    let mut loser = None;
    wait_until(PATIENCE, "one of two has ended", || {
        loser = fleet.iter_mut().position(Running::has_ended);
        loser.is_some()
    });
    let (status, err) = fleet.remove(loser.expect("one of two")).end(PATIENCE);
    assert_eq!((status.code(), err.as_str()), (Some(1), ""));
    let mut winner = fleet.remove(0);
    assert_eq!(winner.line(), "done");

    // A machine whose clock is late.
    let (status, err) = crontab.start().end(PATIENCE);
    assert_eq!((status.code(), err.as_str()), (Some(1), ""));
    assert!(
        !winner.has_ended(),
        "it holds the lease, though the job has ended"
    );
    process::send(program_of(&winner), Signal::TERM);
    let (status, err) = winner.end(PATIENCE);
    assert_eq!((status.code(), err.as_str()), (Some(0), ""));
    assert_eq!(fs::read_to_string(ran).unwrap(), "1\n", "one run");
}

/// A unit, as systemd reads it.
struct Unit(Vec<(&'static str, String)>);

impl Unit {
    fn parse(lines: &[&'static str], put: impl Fn(&str) -> String) -> Unit {
        let is_setting = |line: &&&str| !line.is_empty() && !line.starts_with(['#', ';', '[']);
        let settings = lines.iter().filter(is_setting).map(|line| {
            let (name, value) = line.split_once('=').expect("NAME=VALUE");
            // A remark behind a value is part of the value.
            assert!(!value.contains('#'), "{line}");
            (name, put(value))
        });
        Unit(settings.collect())
    }

    #[track_caller]
    fn get(&self, name: &str) -> &str {
        let mut found = self.0.iter().filter(|(given, _)| *given == name);
        let (_, value) = found.next().unwrap_or_else(|| panic!("no {name}"));
        value
    }

    /// Without a shell, and with what the unit says in its environment.
    fn start(&self) -> Running {
        let line = self.get("ExecStart");
        assert!(!line.contains(['"', '\'', '$', '%', '\\']), "{line}");
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().expect("a program"));
        command
            .args(words)
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin");
        let file = fs::read_to_string(self.get("EnvironmentFile")).expect("its environment");
        for (name, value) in file.lines().filter_map(|line| line.split_once('=')) {
            command.env(name, value);
        }
        Running::start(&mut command)
    }

    fn stops_within(&self) -> Duration {
        let seconds = self
            .get("TimeoutStopSec")
            .strip_suffix('s')
            .expect("seconds");
        Duration::from_secs(seconds.parse().expect("a number"))
    }

    /// As systemd does by `KillMode=mixed`: SIGTERM to one process alone. It ends in time, and has not failed.
    #[track_caller]
    fn stop(&self, running: &mut Running) {
        assert_eq!(self.get("KillMode"), "mixed");
        running.signal(Signal::TERM);
        let (status, err) = running.end(self.stops_within());
        let code = status.code().expect("an exit code").to_string();
        let successes = self.get("SuccessExitStatus");
        let success = code == "0" || successes.split(' ').any(|listed| listed == code);
        assert!(success, "{code}: {err}");
    }
}

fn a_systemd_unit<C: Database>() {
    let fresh = Fresh::new::<C>();
    let place = Place::new();
    let mark = Mark::new();
    let script = mark.script("SLEEP & setsid SLEEP & echo $LEASEHOLD_TERM; exec SLEEP");
    let mailer = place.program("mailer", &script);
    let environment = place.path("leasehold.env");
    fs::write(
        &environment,
        format!("LEASEHOLD_DATABASE_URL={}\n", fresh.url),
    )
    .unwrap();
    let lines = recipe("### A systemd unit", "ini");
    let put_in = |text: &str| {
        text.replace("/etc/leasehold.env", environment.to_str().unwrap())
            .replace("/usr/local/bin/leasehold", PROGRAM)
            .replace("/usr/bin/mailer", &mailer)
    };
    judged_by_systemd(&place, &put_in(&lines.join("\n")));

    let unit = Unit::parse(&lines, put_in);
    assert_eq!(
        unit.get("KillMode"),
        "mixed",
        "SIGTERM to one process alone"
    );
    let mut first = unit.start();
    assert_eq!(first.line(), "1");
    mark.becomes(3);
    let mut second = unit.start();
    let election = fresh.election();
    wait_until(PATIENCE, "both stand", || {
        election.list_candidates("mailer").unwrap().len() == 2
    });
    unit.stop(&mut first);
    assert_eq!(second.line(), "2", "the next machine");
    unit.stop(&mut second);
    assert_eq!(mark.alive(), 0, "nothing for SIGKILL to end");
}

/// What systemd itself says of the unit, where it is installed.
fn judged_by_systemd(place: &Place, unit: &str) {
    let path = place.path("mailer.service");
    fs::write(&path, unit).unwrap();
    let mut command = Command::new("systemd-analyze");
    match command.arg("verify").arg(&path).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            // Other units of the machine are read along, and may have faults of their own.
            let ours: Vec<&str> = text
                .lines()
                .filter(|line| line.contains("mailer"))
                .collect();
            assert!(ours.is_empty(), "{text}");
        }
        Err(error) => say_plainly(&format!(
            "what systemd-analyze says of the unit: {error}. The unit itself was run."
        )),
    }
}

/// A container's entry point, with `cmd` as its command.
struct Container {
    running: Running,
    /// `leasehold` in it, as this side of the namespace numbers it.
    first: Pid,
    is_process_1: bool,
}

impl Container {
    fn start(url: &str, cmd: &str) -> Container {
        let lines = recipe("### A container's entry point", "dockerfile");
        let words = |instruction: &str| -> Vec<String> {
            let mut found = lines
                .iter()
                .filter_map(|line| line.strip_prefix(instruction));
            serde_json::from_str(found.next().expect(instruction)).expect("a list of words")
        };
        let mut argv = words("ENTRYPOINT ");
        argv.extend(
            words("CMD ")
                .iter()
                .map(|word| put(word, "/usr/bin/mailer", cmd)),
        );
        let unshare = as_process_1();
        let is_process_1 = unshare.is_some();
        if !is_process_1 {
            say_plainly(
                "an entry point as process 1: `unshare --pid` is not permitted. It was run as another process.",
            );
        }
        let mut all: Vec<String> = unshare
            .iter()
            .flatten()
            .map(|word| word.to_string())
            .collect();
        all.extend(argv);
        let mut command = Command::new(&all[0]);
        command
            .args(&all[1..])
            .env("PATH", search_path())
            .env("LEASEHOLD_DATABASE_URL", url);
        let running = Running::start(&mut command);
        let first_line = running.line();
        assert!(first_line.starts_with("ready"), "{first_line}");
        let first = program_of(&running);
        Container {
            running,
            first,
            is_process_1,
        }
    }

    /// The id that a process has inside.
    fn id_inside(pid: Pid) -> String {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let ids = status.lines().find(|line| line.starts_with("NSpid:"));
        let inside = ids.and_then(|ids| ids.split_whitespace().last());
        inside.expect("its ids").to_owned()
    }
}

fn a_containers_entry_point<C: Database>() {
    let fresh = Fresh::new::<C>();
    let place = Place::new();
    let election = fresh.election();

    // Eight orphans that end at once; then it waits for SIGTERM, and has a code of its own.
    let script = "for i in 1 2 3 4 5 6 7 8; do (sleep 0.01 &); done
        trap 'echo heard; exit 9' TERM; echo ready; while :; do sleep 0.02; done";
    let mailer = place.program("mailer", script);
    let mut container = Container::start(&fresh.url, &mailer);
    let first = container.first;
    if container.is_process_1 {
        assert_eq!(Container::id_inside(first), "1");
        orphans_of_process_1_are_reaped(first);
    }
    let warden = process::children_of(first)[0];
    wait_until(PATIENCE, "no orphan is left", || {
        let children = process::children_of(warden);
        // The command, which is always about to sleep.
        children.len() == 1 && process::children_of(first) == [warden]
    });
    process::send(first, Signal::TERM);
    assert_eq!(container.running.line(), "heard");
    assert_eq!(container.running.end(PATIENCE).0.code(), Some(9));
    assert!(election.leader("mailer").unwrap().is_none());
}

/// What is started from outside (`docker exec`), and left there, becomes a child of process 1.
fn orphans_of_process_1_are_reaped(first: Pid) {
    let mark = Mark::new();
    let mut command = Command::new("nsenter");
    command.args(["--target", &first.to_string(), "--pid"]);
    if !rustix::process::geteuid().is_root() {
        command.args(["--user", "--preserve-credentials"]);
    }
    command.args(["sh", "-c", &mark.script("SLEEP >/dev/null 2>&1 &")]);
    let (code, _, err) = said(&mut command);
    assert_eq!(code, 0, "{err}");
    let mut orphan = None;
    wait_until(PATIENCE, "the orphan is a child of process 1", || {
        orphan = mark.pid();
        orphan.is_some_and(|orphan| process::children_of(first).contains(&orphan))
    });
    process::kill(orphan.expect("found"));
    wait_until(PATIENCE, "the orphan is waited for", || {
        process::children_of(first).len() == 1
    });
}

fn who_leads_as_a_health_check<C: Database>() {
    let fresh = Fresh::new::<C>();
    let lines = recipe("### Who leads, as a health check", "sh");
    let (who, me, unled) = (lines[0], lines[1], lines[2]);
    assert_eq!(lines.len(), 3, "{lines:?}");
    let node = Uuid::new_v4().to_string();
    let ask = |line: &str, id: &str| said(shell(&fresh.url, line).env("NODE_ID", id));
    let answer = |code, out: &str| (code, out.to_owned(), String::new());

    assert_eq!(ask(who, &node), answer(1, ""));
    assert_eq!(ask(me, &node), answer(1, "no\n"));
    assert_eq!(ask(unled, &node), answer(0, ""), "nobody has led yet");

    let inside = "leasehold is-leader; read line";
    let mut command = shell(
        &fresh.url,
        "exec leasehold run -q --ns mailer --id $ID -- sh -c \"$IN\"",
    );
    command.env("ID", &node).env("IN", inside);
    let mut leader = Running::start(command.stdin(std::process::Stdio::piped()));
    assert_eq!(leader.line(), "yes", "inside CMD it needs no arguments");
    assert_eq!(ask(who, &node), answer(0, &format!("{node}\n")));
    assert_eq!(ask(me, &node), answer(0, "yes\n"));
    assert_eq!(ask(me, &Uuid::new_v4().to_string()), answer(1, "no\n"));
    assert_eq!(ask(unled, &node), answer(0, ""));
    leader.signal(Signal::TERM);
    leader.end(PATIENCE);
    assert_eq!(ask(unled, &node), answer(0, "\"mailer\"\n"));

    // A database that is not there, and one that is silent, say nothing about who leads.
    let elsewhere = match fresh.url.contains('@') {
        true => put(&fresh.url, &address(&fresh.url), "127.0.0.1:1"),
        false => format!("{}.elsewhere", fresh.url),
    };
    assert_eq!(said(&mut shell(&elsewhere, who)).0, 3);
    // The client library of MariaDB is the one that would wait without end.
    if fresh.url.starts_with("mysql:") {
        let (proxy, url) = Proxy::in_front_of(&fresh.url);
        proxy.go_dark();
        let began = Instant::now();
        let (code, out, err) = said(&mut shell(&url, who));
        assert_eq!((code, out.as_str()), (3, ""), "{err}");
        assert!(began.elapsed() < Duration::from_secs(5), "--timeout 3s");
    }
}

fn address(url: &str) -> String {
    let (_, rest) = url.split_once('@').expect("a server");
    rest.split('/').next().expect("an address").to_owned()
}

fn taking_a_node_out_of_service<C: Database>() {
    let fresh = Fresh::new::<C>();
    let lines = recipe("### Taking a node out of service", "sh");
    let (which, out) = (lines[0], lines[1]);
    assert_eq!(lines.len(), 2, "{lines:?}");
    let start = |id: &Uuid| {
        let id = id.to_string();
        let script = "echo $LEASEHOLD_TERM; exec sleep 1000";
        let mut command = leasehold(&fresh.url);
        command.args(["run", "--ns", "mailer", "--id", &id, "--expire", "5s", "--"]);
        Running::start(command.args(["sh", "-c", script]))
    };
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    let mut drained = start(&first);
    assert_eq!(drained.line(), "1");
    let mut other = start(&second);
    let election = fresh.election();
    wait_until(PATIENCE, "both stand", || {
        election.list_candidates("mailer").unwrap().len() == 2
    });

    let (code, table, err) = said(&mut shell(&fresh.url, which));
    assert_eq!((code, err.as_str()), (0, ""));
    let leader = table.lines().find(|line| line.contains(" leader "));
    let id = leader.and_then(|line| line.split_whitespace().nth(1));
    let id = id.expect("the id of the leader").to_owned();
    assert_eq!(id, first.to_string());
    let (code, _, err) = said(&mut shell(&fresh.url, &put(out, "UUID", &id)));
    assert_eq!((code, err.as_str()), (0, ""));

    // Whoever is next; the drained one, which was reached, campaigns again, and may be it.
    let winner = || election.leader("mailer").unwrap();
    wait_until(PATIENCE, "somebody leads under the next term", || {
        winner().is_some_and(|leader| leader.term.get() == 2)
    });
    let next = winner().expect("a leader").candidate_id;
    let led = if next == second { &other } else { &drained };
    assert_eq!(led.line(), "2");
    wait_until(PATIENCE, "the drained one stands again", || {
        election.list_candidates("mailer").unwrap().contains(&first)
    });

    // The other way: SIGTERM. The command ends, and then another node leads.
    let (leader, follower) = match next == second {
        true => (&mut other, &drained),
        false => (&mut drained, &other),
    };
    leader.signal(Signal::TERM);
    assert_eq!(leader.end(PATIENCE).0.code(), Some(143));
    assert_eq!(follower.line(), "3");
}

/// One that does not end is killed so early that the lease is given up within Docker's ten seconds.
#[cfg(feature = "sqlite")]
#[test]
fn a_container_that_is_deaf_to_its_end() {
    let fresh = Fresh::new::<diesel::sqlite::SqliteConnection>();
    let place = Place::new();
    let script = "trap '' TERM; echo ready; while :; do sleep 1; done";
    let deaf = place.program("deaf", script);
    let mut container = Container::start(&fresh.url, &deaf);
    process::send(container.first, Signal::TERM);
    let told = Instant::now();
    let (status, err) = container.running.end(Duration::from_secs(10));
    assert_eq!(status.code(), Some(137), "{err}");
    assert!(told.elapsed() > Duration::from_secs(7), "it had its time");
    assert!(fresh.election().leader("mailer").unwrap().is_none());
}

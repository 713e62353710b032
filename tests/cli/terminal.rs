//! `leasehold` in front of a person, and in front of none.

#![cfg(feature = "sqlite")]

use std::os::unix::process::ExitStatusExt;
use std::process::Command;

use uuid::Uuid;

use crate::database::Fresh;
use crate::pty::{CTRL_C, CTRL_D, CTRL_Z, Pty};
use crate::running::{Mark, PATIENCE, Running, as_process_1, leasehold, say_plainly};
use crate::support::process::{self, Pid, Signal};
use crate::support::{Directory, wait_until};

type Any = diesel::sqlite::SqliteConnection;

/// `leasehold ARGS` by way of a shell, in whose words `leasehold` is the program.
fn shell(fresh: &Fresh, script: &str) -> Command {
    let mut command = Command::new("sh");
    let program = format!(
        "leasehold() {{ {} \"$@\"; }}",
        env!("CARGO_BIN_EXE_leasehold")
    );
    command
        .args(["-c", &format!("{program}\n{script}")])
        .env("LEASEHOLD_DATABASE_URL", &fresh.url);
    command
}

/// `leasehold run --ns x -- sh -c SCRIPT`.
fn run(fresh: &Fresh, script: &str) -> Command {
    let mut command = leasehold(&fresh.url);
    command.args(["run", "--ns", "x", "--", "sh", "-c", script]);
    command
}

/// The id that the command has printed before the end of the line.
#[track_caller]
fn pid_shown(terminal: &mut Pty) -> Pid {
    terminal.shows("ready ");
    process::parse(&terminal.shows("\r\n")).expect("an id")
}

#[track_caller]
fn wait_for_the_terminal(terminal: &Pty, command: Pid) {
    wait_until(PATIENCE, "the command has the terminal", || {
        terminal.foreground() == Some(command)
    });
}

#[test]
fn ctrl_c_ends_the_command() {
    let fresh = Fresh::new::<Any>();
    let script = r#"trap "echo heard; exit 3" INT; echo ready $$; while :; do sleep 0.02; done"#;
    let mut terminal = Pty::start(&run(&fresh, script));
    let command = pid_shown(&mut terminal);
    wait_for_the_terminal(&terminal, command);
    terminal.types(CTRL_C);
    terminal.shows("heard");
    assert_eq!(terminal.end().0.code(), Some(3));

    let mark = Mark::new();
    let script = mark.script("SLEEP & echo ready $$; SLEEP; echo not here");
    let mut terminal = Pty::start(&run(&fresh, &script));
    pid_shown(&mut terminal);
    mark.becomes(2);
    terminal.types(CTRL_C);
    let (status, text) = terminal.end();
    assert_eq!((status.code(), mark.alive()), (Some(130), 0), "{text:?}");
    assert!(!text.contains("not here"), "{text:?}");
    assert!(fresh.election().leader("x").unwrap().is_none());
}

/// There the terminal stays with the whole pipeline, and the program passes the signal on.
#[test]
fn ctrl_c_ends_a_command_in_a_pipeline() {
    let fresh = Fresh::new::<Any>();
    let mark = Mark::new();
    let inner = mark.script("echo ready; SLEEP & SLEEP");
    let script = format!("leasehold run --ns x -- sh -c '{inner}' | cat");
    let mut terminal = Pty::start(&shell(&fresh, &script));
    terminal.shows("ready");
    mark.becomes(2);
    terminal.types(CTRL_C);
    terminal.end();
    wait_until(PATIENCE, "the row is free", || {
        fresh.election().leader("x").unwrap().is_none()
    });
    assert_eq!(mark.alive(), 0);
}

#[test]
fn ctrl_c_ends_one_who_waits() {
    let fresh = Fresh::new::<Any>();
    let election = fresh.election();
    election.elect(Uuid::new_v4(), "x").unwrap();
    let mut terminal = Pty::start(&run(&fresh, "echo ran"));
    terminal.shows("lease ends in");
    terminal.types(CTRL_C);
    let (status, text) = terminal.end();
    assert_eq!(status.code(), Some(130), "{text:?}");
    assert!(text.contains("the command was not run"), "{text:?}");
    assert!(!text.contains("ran\r\n"), "{text:?}");
    assert_eq!(election.list_candidates("x").unwrap().len(), 1);
}

#[test]
fn ctrl_z_gives_the_shell_the_word_and_fg_takes_it_back() {
    let fresh = Fresh::new::<Any>();
    let inner = r#"echo ready $$; while read line; do echo "got $line"; done; exit 5"#;
    let script = format!(
        "set -m
         leasehold run --ns x --expire 1h -- sh -c '{inner}'
         echo stopped=$?; read go; fg >/dev/null; echo ended=$?"
    );
    let mut terminal = Pty::start(&shell(&fresh, &script));
    let command = pid_shown(&mut terminal);
    wait_for_the_terminal(&terminal, command);
    for word in ["one", "two"] {
        terminal.types(&format!("{word}\n"));
        terminal.shows(&format!("got {word}"));
    }
    terminal.types(CTRL_Z);
    // 128 and the number of SIGSTOP.
    terminal.shows("stopped=147");
    assert!(process::is_paused(command), "the command is stopped");
    assert_ne!(terminal.foreground(), Some(command));
    terminal.types("go\n");
    wait_for_the_terminal(&terminal, command);
    terminal.types("three\n");
    terminal.shows("got three");
    terminal.types(CTRL_D);
    terminal.shows("ended=5");
    assert_eq!(terminal.end().0.code(), Some(0));
}

/// Who reads the terminal from the background is stopped by the kernel, and gets it with `fg`.
#[test]
fn a_command_in_the_background_gets_the_terminal_with_fg() {
    let fresh = Fresh::new::<Any>();
    let inner = r#"echo ready $$; read line; echo "got $line"; exit 5"#;
    let script = format!(
        "set -m
         leasehold run --ns x --expire 1h -- sh -c '{inner}' &
         read go; fg >/dev/null; echo ended=$?"
    );
    let mut terminal = Pty::start(&shell(&fresh, &script));
    let command = pid_shown(&mut terminal);
    wait_until(PATIENCE, "it is stopped", || process::is_paused(command));
    assert_ne!(terminal.foreground(), Some(command));
    terminal.types("go\n");
    wait_for_the_terminal(&terminal, command);
    terminal.types("one\n");
    terminal.shows("got one");
    terminal.shows("ended=5");
    assert_eq!(terminal.end().0.code(), Some(0));
}

/// As when its window is closed.
#[test]
fn a_terminal_that_goes_away_ends_the_command() {
    let fresh = Fresh::new::<Any>();
    let election = fresh.election();
    let mark = Mark::new();
    let inner = mark.script("SLEEP & echo ready $$; SLEEP");
    let script = format!("set -m; leasehold run --ns x --expire 1h -- sh -c '{inner}'; true");
    let mut terminal = Pty::start(&shell(&fresh, &script));
    let command = pid_shown(&mut terminal);
    wait_for_the_terminal(&terminal, command);
    mark.becomes(2);
    process::kill(terminal.pid());
    mark.becomes(0);
    wait_until(PATIENCE, "the row is free", || {
        election.leader("x").unwrap().is_none()
    });
}

/// Nobody could continue it: so the command goes on.
#[test]
fn ctrl_z_without_a_shell_changes_nothing() {
    let fresh = Fresh::new::<Any>();
    let script = r#"echo ready $$; while read line; do echo "got $line"; done; exit 5"#;
    let mut terminal = Pty::start(&run(&fresh, script));
    let command = pid_shown(&mut terminal);
    wait_for_the_terminal(&terminal, command);
    terminal.types(CTRL_Z);
    terminal.types("one\n");
    terminal.shows("got one");
    terminal.types(CTRL_D);
    assert_eq!(terminal.end().0.code(), Some(5));
}

/// It would be stopped again at once, and so for ever.
#[test]
fn a_command_that_cannot_get_the_terminal_stays_stopped_and_the_person_is_told() {
    let fresh = Fresh::new::<Any>();
    let inner = "echo ready $$; read line </dev/tty; echo not here";
    let script = format!(
        "set -m; ({} run --ns x -- sh -c '{inner}' & echo program $!); read go",
        env!("CARGO_BIN_EXE_leasehold")
    );
    let mut terminal = Pty::start(&shell(&fresh, &script));
    terminal.shows("program ");
    let program = process::parse(&terminal.shows("\r\n")).expect("an id");
    let command = pid_shown(&mut terminal);
    terminal.shows("the command is stopped: it needs the terminal");
    assert!(process::is_paused(command));
    assert_eq!(terminal.foreground(), Some(terminal.pid()));

    process::send(program, Signal::TERM);
    wait_until(PATIENCE, "the row is free", || {
        fresh.election().leader("x").unwrap().is_none()
    });
    terminal.types("go\n");
    let (_, text) = terminal.end();
    assert_eq!(text.matches("is stopped").count(), 1, "{text:?}");
    assert!(!text.contains("not here"), "{text:?}");
}

/// What `nsenter` and `unshare --pid` start is of a group that has no id where it runs, and has no terminal to lend.
#[test]
fn a_process_group_of_another_pid_namespace_keeps_its_terminal() {
    let Some(unshare) = as_process_1() else {
        say_plainly("a group of another PID namespace: `unshare --pid` is not permitted");
        return;
    };
    let fresh = Fresh::new::<Any>();
    let inner = r#"trap "echo heard; exit 3" INT; echo ready; read line; echo not here"#;
    let script = format!(
        "{} {} run --ns x -- sh -c '{inner}'; echo ended=$?",
        unshare.join(" "),
        env!("CARGO_BIN_EXE_leasehold")
    );
    let mut terminal = Pty::start(&shell(&fresh, &format!("trap : INT; {script}")));
    terminal.shows("ready");
    terminal.shows("the command is stopped: it needs the terminal");
    assert_eq!(terminal.foreground(), Some(terminal.pid()));
    terminal.types(CTRL_C);
    terminal.shows("heard");
    let (_, text) = terminal.end();
    assert!(!text.contains("not here"), "{text:?}");
    assert!(fresh.election().leader("x").unwrap().is_none());
}

/// The line that is written over and over.
#[test]
fn progress_is_for_a_terminal_alone_and_on_stderr() {
    let fresh = Fresh::new::<Any>();
    let election = fresh.election();
    let leader = Uuid::new_v4();
    election.elect(leader, "x").unwrap();
    let dir = Directory::new();
    let (out, err) = (dir.path().join("out"), dir.path().join("err"));
    let read = |path| std::fs::read_to_string(path).unwrap();
    let id = leader.to_string();

    let script = format!("leasehold run --ns x -- true >{}", out.display());
    let mut terminal = Pty::start(&shell(&fresh, &script));
    let line = format!("following {}… term 1, lease ends in ", &id[..8]);
    terminal.shows(&line);
    terminal.shows(&line);
    terminal.types(CTRL_C);
    let (_, text) = terminal.end();
    assert_eq!(read(&out), "", "nothing on stdout");
    assert!(text.contains("\x1b[2m"), "dim: {text:?}");
    assert!(text.contains("\x1b[K"), "in place: {text:?}");

    let script = format!(
        "leasehold run --ns x --wait 700ms -- true 2>{}",
        err.display()
    );
    let (status, text) = Pty::start(&shell(&fresh, &script)).end();
    assert_eq!((status.code(), text.as_str()), (Some(1), ""));
    let said = read(&err);
    let note = format!("leasehold: following {id}, term 1\n");
    assert!(said.starts_with(&note), "{said:?}");
    assert!(
        !said.contains(['\x1b', '\r']) && !said.contains("ends in"),
        "{said:?}"
    );

    let script = "leasehold run --ns x -q --wait 700ms -- true";
    let (status, text) = Pty::start(&shell(&fresh, script)).end();
    assert_eq!((status.code(), text.as_str()), (Some(1), ""));
}

#[test]
fn no_color_is_respected() {
    let fresh = Fresh::new::<Any>();
    let election = fresh.election();
    election.elect(Uuid::new_v4(), "x").unwrap();
    let colours = |text: &str| {
        let codes = text.split("\x1b[").skip(1);
        codes
            .filter(|code| {
                code.trim_start_matches(|c: char| c == ';' || c.is_ascii_digit())
                    .starts_with('m')
            })
            .count()
    };
    let mut command = run(&fresh, "true");
    let mut terminal = Pty::start(command.env("NO_COLOR", "1"));
    terminal.shows("lease ends in");
    terminal.types(CTRL_C);
    let (_, text) = terminal.end();
    assert_eq!(colours(&text), 0, "{text:?}");
    assert!(
        text.contains("\x1b[K"),
        "it still moves the cursor: {text:?}"
    );
    for (name, none) in [("NO_COLOR", true), ("SOME_COLOR", false)] {
        let mut command = leasehold(&fresh.url);
        command.args(["status"]).env(name, "1");
        let (_, text) = Pty::start(&command).end();
        assert_eq!(colours(&text) == 0, none, "{text:?}");
        assert!(text.contains("leader"), "{text:?}");
        let mut command = leasehold(&fresh.url);
        command.args(["status", "--watch"]).env(name, "1");
        let mut terminal = Pty::start(&command);
        terminal.shows("Ctrl-C ends");
        terminal.types(CTRL_C);
        let (_, text) = terminal.end();
        assert_eq!(colours(&text) == 0, none, "{text:?}");
    }
}

#[test]
fn a_watched_status_is_drawn_in_place_until_ctrl_c() {
    let fresh = Fresh::new::<Any>();
    let election = fresh.election();
    let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
    election.elect(first, "x").unwrap();
    let mut command = leasehold(&fresh.url);
    command.args(["status", "--watch", "--interval", "100ms"]);
    let mut terminal = Pty::start(&command);
    let before = format!("{:?}", terminal.settings());
    let drawn = terminal.shows("Ctrl-C ends");
    assert!(drawn.contains(&first.to_string()), "{drawn:?}");
    // Four lines: the heading, the leader, an empty one, the foot.
    terminal.shows("\x1b[4A");
    election.elect(second, "x").unwrap();
    terminal.shows(&second.to_string());
    terminal.shows("\x1b[5A");
    terminal.types(CTRL_C);
    let (status, text) = terminal.end();
    assert_eq!(status.signal(), Some(Signal::INT.as_raw()), "{text:?}");
    // Nothing was taken from the terminal that had to be given back, and the prompt gets a line of its own.
    assert!(!text.contains("\x1b[?"), "{text:?}");
    assert!(
        text.trim_end_matches("^C").ends_with("\r\n\x1b[J"),
        "{text:?}"
    );
    assert_eq!(before, format!("{:?}", terminal.settings()));
}

/// `nohup`, and a shell's `&`: who shall not hear a signal does not, and neither does the command.
#[test]
fn an_ignored_signal_stays_ignored() {
    let fresh = Fresh::new::<Any>();
    let script =
        r#"trap "echo alive" USR1; grep SigIgn /proc/self/status; while :; do sleep 0.02; done"#;
    for (signal, by) in [
        (Signal::HUP, ["nohup"].as_slice()),
        (Signal::INT, &["env", "--ignore-signal=INT"]),
        (Signal::QUIT, &["env", "--ignore-signal=QUIT"]),
    ] {
        let start = |ns: &str| {
            let mut command = Command::new(by[0]);
            command
                .args(&by[1..])
                .arg(env!("CARGO_BIN_EXE_leasehold"))
                .args([
                    "run",
                    "--ns",
                    ns,
                    "--kill-after",
                    "10ms",
                    "--",
                    "sh",
                    "-c",
                    script,
                ])
                .env("LEASEHOLD_DATABASE_URL", &fresh.url)
                .stdin(std::process::Stdio::null());
            Running::start(&mut command)
        };
        let ns = format!("{signal:?}");
        let mut leader = start(&ns);
        let line = leader.line();
        let mask = line.split_whitespace().last().expect("a mask");
        let mask = u64::from_str_radix(mask, 16).expect("hexadecimal");
        assert_eq!(mask >> (signal.as_raw() - 1) & 1, 1, "{line}");
        let mut follower = start(&ns);
        wait_until(PATIENCE, "both stand", || {
            fresh.election().list_candidates(&*ns).unwrap().len() == 2
        });
        // It is heard before SIGTERM if it is heard at all: of those that wait, the one of the lower number comes first.
        follower.signal(signal);
        follower.signal(Signal::TERM);
        let (status, err) = follower.end(PATIENCE);
        assert_eq!(status.code(), Some(143), "{err}");
        leader.signal(signal);
        leader.signal(Signal::USR1);
        assert_eq!(leader.line(), "alive");
        leader.signal(Signal::TERM);
        let (status, err) = leader.end(PATIENCE);
        assert!(matches!(status.code(), Some(143 | 137)), "{status:?} {err}");
    }
}

/// Some parents ignore SIGCHLD, and their children inherit that: the exit code must be learned all the same.
#[test]
fn the_exit_code_is_learned_though_the_parent_ignores_sigchld() {
    let fresh = Fresh::new::<Any>();
    let mut command = Command::new("env");
    command
        .args(["--ignore-signal=CHLD", env!("CARGO_BIN_EXE_leasehold")])
        .args(["run", "-q", "--ns", "x", "--", "sh", "-c", "exit 7"])
        .env("LEASEHOLD_DATABASE_URL", &fresh.url);
    let (status, err) = Running::start(&mut command).end(PATIENCE);
    assert_eq!((status.code(), err.as_str()), (Some(7), ""));
}

//! The table: every row once a round, medians of the rounds and of their ratios, targets.

use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::ours::{self, CROWD};
use crate::rivals;
use crate::support::database::{Kind, postgres};
use crate::support::load::median;
use crate::support::servers::{Postgres, process, server::output_of};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ours,
    Pgbench,
    Package,
}

/// One thing to measure: who does what, how many at once, on one core or free.
type Load = (Side, &'static str, usize, bool);

/// Calls per second, and the milliseconds of a call: p50 and p99; then the same of the leader alone.
type Figures = [f64; 6];

struct Row {
    name: &'static str,
    ours: &'static str,
    limit: &'static str,
    /// The package has the same call.
    package: bool,
    clients: usize,
    pinned: bool,
    /// The least ratio to the limit, and to the package.
    targets: (Option<f64>, Option<f64>),
}

const fn single(name: &'static str, ours: &'static str, limit: &'static str, target: f64) -> Row {
    Row {
        name,
        ours,
        limit,
        package: true,
        clients: 1,
        pinned: false,
        targets: (Some(target), None),
    }
}

const fn pinned(row: Row, target: f64) -> Row {
    Row {
        package: false,
        pinned: true,
        targets: (Some(target), None),
        ..row
    }
}

const RENEWAL: Row = single("renewal by `elect`", "elect", "update", 0.70);
const HEARTBEAT: Row = single("`heartbeat`", "heartbeat", "update", 0.75);
const IS_LEADER: Row = single("`is_leader`", "is_leader", "select", 0.80);
const LEADER: Row = Row {
    package: false,
    ..single("`leader`", "leader", "select", 0.80)
};

/// The candidates that compete on one namespace.
const CANDIDATES: usize = 32;

const ROWS: [Row; 11] = [
    RENEWAL,
    pinned(RENEWAL, 0.90),
    HEARTBEAT,
    pinned(HEARTBEAT, 0.90),
    IS_LEADER,
    pinned(IS_LEADER, 0.85),
    LEADER,
    pinned(LEADER, 0.85),
    Row {
        name: "32 candidates on one namespace",
        clients: CANDIDATES,
        targets: (None, Some(20.0)),
        ..single("", "elect", "update", 0.0)
    },
    Row {
        name: "8 clients, renewals over 32 namespaces",
        clients: 8,
        targets: (None, None),
        ..single("", "elect_in_four", "update_one_of_four", 0.0)
    },
    // The limit is the server's time for the SELECT and its transfer.
    Row {
        name: "`list_candidates`, 100,000",
        ..single("", "list", "list", 1.0 / 1.3)
    },
];

/// Limits that stand for themselves.
const FURTHER: [(&str, Load); 3] = [
    (
        "two rows by key in one statement, on one core",
        (Side::Pgbench, "two_updates", 1, true),
    ),
    (
        "BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT",
        (Side::Pgbench, "locked_update", 1, false),
    ),
    (
        "32 clients, SELECT by key",
        (Side::Pgbench, "select", 32, false),
    ),
];

struct Bench {
    server: &'static Postgres,
    database: String,
    url: String,
    /// A database of the package's own.
    package_url: String,
}

/// What one round tells of a row, measured one right after the other: what slows this machine for a while slows all.
struct Round {
    limit: f64,
    ours: Figures,
    package: Option<Figures>,
}

impl Round {
    fn times_of_package(&self) -> Option<f64> {
        self.package.map(|package| self.ours[0] / package[0])
    }
}

pub fn print(rounds: usize, time: Duration) {
    let bench = Bench::new();
    let mut measured: [Vec<Round>; ROWS.len()] = Default::default();
    let mut further: [Vec<f64>; FURTHER.len()] = Default::default();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}, load average {}", load_average());
        for core in [false, true] {
            pin(bench.server, core);
            for (row, rounds) in ROWS.iter().zip(&mut measured) {
                if row.pinned == core {
                    rounds.push(bench.round(row, time));
                }
            }
            for ((_, load), rates) in FURTHER.iter().zip(&mut further) {
                if load.3 == core {
                    rates.push(bench.run(*load, time)[0]);
                }
            }
        }
    }
    println!(
        "\nMedians of {rounds} alternating rounds of {time:?}, each ratio of the two sides of one round; \
         calls per second; load average {}.\n",
        load_average()
    );
    println!(
        "| work | leasehold | p50 / p99 ms | pgbench | ratio | target | Python package | times |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (row, rounds) in ROWS.iter().zip(&measured) {
        print_row(row, rounds);
    }
    for ((name, _), rates) in FURTHER.iter().zip(&further) {
        println!("| {name} | | | {:.0} | | | | |", median(rates));
    }
}

fn print_row(row: &Row, rounds: &[Round]) {
    let of =
        |figure: &dyn Fn(&Round) -> f64| median(&rounds.iter().map(figure).collect::<Vec<_>>());
    let ours = |which: usize| of(&|round| round.ours[which]);
    let package = |which: usize| {
        let figures = rounds.iter().filter_map(|round| round.package);
        median(&figures.map(|figures| figures[which]).collect::<Vec<_>>())
    };
    let times: Option<Vec<f64>> = rounds.iter().map(Round::times_of_package).collect();
    let core = if row.pinned { ", on one core" } else { "" };
    let targets = [
        row.targets.0.map(|ratio| format!("≥ {ratio:.2}")),
        row.targets.1.map(|times| format!("≥ {times:.0} times")),
    ];
    println!(
        "| {}{core} | {:.0} | {:.3} / {:.3} | {:.0} `{}` | {:.2} | {} | {} | {} |",
        row.name,
        ours(0),
        ours(1),
        ours(2),
        of(&|round| round.limit),
        row.limit,
        of(&|round| round.ours[0] / round.limit),
        targets.into_iter().flatten().collect::<Vec<_>>().join(", "),
        times
            .as_ref()
            .map_or(String::new(), |_| format!("{:.1}", package(0))),
        times
            .as_ref()
            .map_or(String::new(), |times| format!("{:.1}", median(times))),
    );
    if row.clients == CANDIDATES {
        println!(
            "| … the leader's own renewals | {:.0} | {:.3} / {:.3} | | | p50 ≤ 5 ms | {:.1} (p50 {:.0} ms) | |",
            ours(3),
            ours(4),
            ours(5),
            package(3),
            package(4),
        );
    }
}

impl Bench {
    fn new() -> Bench {
        let server = postgres();
        let [ours, theirs] = [(); 2].map(|()| Kind::Postgres.fresh());
        ours.exec(rivals::LIMIT_TABLE);
        for database in [&ours, &theirs] {
            database.fill("crowd", CROWD);
        }
        Bench {
            server,
            package_url: theirs.url.clone(),
            database: ours.name.clone(),
            url: ours.url.clone(),
        }
    }

    fn round(&self, row: &Row, time: Duration) -> Round {
        let side = |side, work| self.run((side, work, row.clients, row.pinned), time);
        Round {
            limit: side(Side::Pgbench, row.limit)[0],
            ours: side(Side::Ours, row.ours),
            package: row.package.then(|| side(Side::Package, row.ours)),
        }
    }

    fn run(&self, (side, work, clients, pinned): Load, time: Duration) -> Figures {
        let command = match side {
            Side::Ours => ours::command(work, &self.url, clients, time),
            Side::Pgbench => rivals::pgbench(self.server, &self.database, work, clients, time),
            Side::Package => rivals::package(work, &self.package_url, clients, time),
        };
        let mut command = if pinned {
            on_one_core(&command)
        } else {
            command
        };
        let told = output_of(&mut command, "");
        if side == Side::Pgbench {
            return [rivals::pgbench_result(&told), 0.0, 0.0, 0.0, 0.0, 0.0];
        }
        let figures: Vec<f64> = told.split_whitespace().map(crate::number).collect();
        figures
            .try_into()
            .unwrap_or_else(|_| panic!("six figures, not {told:?}"))
    }
}

const CORE: &str = "0";

fn on_one_core(command: &Command) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", CORE]).arg(command.get_program());
    pinned.args(command.get_args());
    pinned
}

/// Keeps the server, and each session it opens from now on, on one core; or lets it go again.
fn pin(server: &Postgres, core: bool) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let all = format!("0-{}", cores - 1);
    let list = if core { CORE } else { &all };
    let mut processes = process::children_of(server.pid());
    processes.push(server.pid());
    for pid in processes {
        // A session may end meanwhile.
        let _ = Command::new("taskset")
            .args(["-a", "-p", "-c", list, &pid.to_string()])
            .output();
    }
}

fn load_average() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or_default().to_owned()
}

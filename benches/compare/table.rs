//! The table: every load once a round, medians of the rounds, ratios, targets.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::Duration;

use crate::ours::{self, CROWD};
use crate::rivals;
use crate::support::database::{Kind, postgres};
use crate::support::load::median;
use crate::support::servers::{Postgres, process, server::output_of};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
        clients: 32,
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
const FURTHER: [(&str, &str, usize); 2] = [
    (
        "BEGIN, SELECT FOR UPDATE, UPDATE, COMMIT",
        "locked_update",
        1,
    ),
    ("32 clients, SELECT by key", "select", 32),
];

struct Bench {
    server: &'static Postgres,
    database: String,
    url: String,
    /// A database of the package's own.
    package_url: String,
}

pub fn print(rounds: usize, time: Duration) {
    let bench = Bench::new();
    let mut measured: BTreeMap<Load, Vec<Figures>> = BTreeMap::new();
    for round in 1..=rounds {
        eprintln!("round {round} of {rounds}, load average {}", load_average());
        for core in [false, true] {
            pin(bench.server, core);
            for load in loads().into_iter().filter(|load| load.3 == core) {
                let figures = bench.run(load, time);
                measured.entry(load).or_default().push(figures);
            }
        }
        pin(bench.server, false);
    }
    let figure = |load: Load, which: usize| {
        let of_rounds: Vec<f64> = measured[&load]
            .iter()
            .map(|figures| figures[which])
            .collect();
        median(&of_rounds)
    };
    println!(
        "\nMedians of {rounds} alternating rounds of {time:?}; calls per second; load average {}.\n",
        load_average()
    );
    println!(
        "| work | leasehold | p50 / p99 ms | pgbench | ratio | target | Python package | times |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for row in &ROWS {
        let ours = (Side::Ours, row.ours, row.clients, row.pinned);
        let limit = figure((Side::Pgbench, row.limit, row.clients, row.pinned), 0);
        let rate = figure(ours, 0);
        let package = row
            .package
            .then(|| figure((Side::Package, row.ours, row.clients, false), 0));
        let core = if row.pinned { ", on one core" } else { "" };
        let targets = [
            row.targets.0.map(|ratio| format!("≥ {ratio:.2}")),
            row.targets.1.map(|times| format!("≥ {times:.0} times")),
        ];
        println!(
            "| {}{core} | {rate:.0} | {:.3} / {:.3} | {limit:.0} `{}` | {:.2} | {} | {} | {} |",
            row.name,
            figure(ours, 1),
            figure(ours, 2),
            row.limit,
            rate / limit,
            targets.into_iter().flatten().collect::<Vec<_>>().join(", "),
            package.map_or(String::new(), |rate| format!("{rate:.1}")),
            package.map_or(String::new(), |other| format!("{:.1}", rate / other)),
        );
        if row.clients == 32 {
            let theirs = (Side::Package, row.ours, row.clients, false);
            println!(
                "| … the leader's own renewals | {:.0} | {:.3} / {:.3} | | | p50 ≤ 5 ms | {:.1} (p50 {:.0} ms) | |",
                figure(ours, 3),
                figure(ours, 4),
                figure(ours, 5),
                figure(theirs, 3),
                figure(theirs, 4),
            );
        }
    }
    for (name, work, clients) in FURTHER {
        let rate = figure((Side::Pgbench, work, clients, false), 0);
        println!("| {name} | | | {rate:.0} | | | | |");
    }
}

fn loads() -> Vec<Load> {
    let mut loads = Vec::new();
    for row in &ROWS {
        loads.push((Side::Ours, row.ours, row.clients, row.pinned));
        loads.push((Side::Pgbench, row.limit, row.clients, row.pinned));
        if row.package {
            loads.push((Side::Package, row.ours, row.clients, false));
        }
    }
    let further = FURTHER.map(|(_, work, clients)| (Side::Pgbench, work, clients, false));
    loads.extend(further);
    let mut seen = std::collections::BTreeSet::new();
    loads.retain(|load| seen.insert(*load));
    loads
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

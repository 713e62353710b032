//! The other two sides: pgbench with the fewest statements that do the work, and the published Python package.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use crate::support::servers::{Postgres, python, server};

/// Rows for pgbench, as many as it has clients, in a table like that of the leaders.
pub const LIMIT_TABLE: &str = "
    CREATE TABLE least (k int PRIMARY KEY, n bigint NOT NULL, at timestamptz) WITH (fillfactor = 50);
    INSERT INTO least SELECT k, 0, now() FROM generate_series(0, 31) AS k;
    GRANT ALL ON least TO leasehold;
    ANALYZE least;";

const UPDATE: &str = "UPDATE least SET n = n + 1, at = clock_timestamp() WHERE k = ";

/// What pgbench repeats.
pub fn script(work: &str) -> String {
    match work {
        "update" => format!("{UPDATE} :client_id;\n"),
        "two_updates" => format!(
            "WITH other AS ({UPDATE} :client_id + 16 RETURNING k) {UPDATE} :client_id AND EXISTS (SELECT FROM other);\n"
        ),
        "update_one_of_four" => format!("\\set k :client_id * 4 + random(0, 3)\n{UPDATE} :k;\n"),
        "select" => "SELECT n, at FROM least WHERE k = :client_id;\n".to_owned(),
        "locked_update" => format!(
            "BEGIN;\nSELECT n, at FROM least WHERE k = :client_id FOR UPDATE;\n{UPDATE} :client_id;\nCOMMIT;\n"
        ),
        "list" => "SELECT candidate_id FROM gemstone_election_candidate \
                   WHERE ns = 'crowd' AND expires_at > clock_timestamp();\n"
            .to_owned(),
        _ => panic!("no such work: {work}"),
    }
}

pub fn pgbench(
    server: &Postgres,
    database: &str,
    work: &str,
    clients: usize,
    time: Duration,
) -> Command {
    let path = server.dir().join(format!("{work}.sql"));
    if !path.exists() {
        std::fs::write(&path, script(work)).expect("the server's directory is writable");
    }
    let mut command = Command::new(server::find(&["pgbench"], &pgbench_places(), "postgresql"));
    command
        .args(["--no-vacuum", "--protocol=prepared", "--username=leasehold"])
        .arg(format!("--host={}", server.dir().display()))
        .arg(format!("--port={}", server.address().port()))
        .arg(format!("--client={clients}"))
        .arg(format!("--jobs={}", clients.min(2)))
        .arg(format!("--time={}", time.as_secs_f64().ceil()))
        .arg(format!("--file={}", path.display()))
        .arg(database);
    command
}

fn pgbench_places() -> Vec<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten();
    let mut places: Vec<PathBuf> = versions
        .flatten()
        .map(|entry| entry.path().join("bin"))
        .collect();
    places.sort();
    places.reverse();
    places
}

/// The tps of pgbench's report.
pub fn pgbench_result(report: &str) -> f64 {
    let tps = report
        .lines()
        .find_map(|line| line.strip_prefix("tps = ")?.split(' ').next());
    tps.and_then(|tps| tps.parse().ok())
        .unwrap_or_else(|| panic!("pgbench reports no tps:\n{report}"))
}

/// One process for each client, so that no interpreter lock is in their way. Prints as our side does.
const PACKAGE: &str = r#"
import os, struct, sys, time
from uuid import uuid4
from gemstone_utils.db import init_db
from gemstone_utils.election import elect, heartbeat, is_leader, list_candidates, set_expire

work, url, clients, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
set_expire(3600)
ids, ns = [uuid4() for _ in range(clients)], str(uuid4())
four = [[str(uuid4()) for _ in range(4)] for _ in range(clients)]
begin = time.time() + 0.4 + 0.05 * clients

def client(n, out):
    init_db(url)
    turn = 0
    def call():
        nonlocal turn
        if work == 'elect': elect(ids[n], ns)
        elif work == 'elect_in_four': elect(ids[n], four[n][turn % 4])
        elif work == 'heartbeat': heartbeat(ids[n], ns)
        elif work == 'is_leader': is_leader(ids[n], ns)
        elif work == 'list': assert len(list_candidates('crowd')) == 100000
        turn += 1
    if n > 0: time.sleep(max(0, begin - 0.2 - time.time()))
    for _ in range(4): call()
    time.sleep(max(0, begin - time.time()))
    last = first = time.perf_counter()
    times = []
    while last - first < seconds:
        call()
        now = time.perf_counter()
        times.append(now - last)
        last = now
    os.write(out, struct.pack('=dI', last - first, len(times)) + struct.pack('=%df' % len(times), *times))

pipes = []
for n in range(clients):
    r, w = os.pipe()
    if os.fork() == 0:
        os.close(r)
        try: client(n, w)
        finally: os._exit(0)
    os.close(w)
    pipes.append(r)
wall, by_client = 0, []
for r in pipes:
    with os.fdopen(r, 'rb') as pipe: told = pipe.read()
    took, count = struct.unpack('=dI', told[:12])
    wall = max(wall, took)
    by_client.append(sorted(struct.unpack('=%df' % count, told[12:])))
every = sorted(t for times in by_client for t in times)
quantile = lambda times, part: 1e3 * times[int(len(times) * part)]
print(len(every) / wall, quantile(every, .5), quantile(every, .99),
      len(by_client[0]) / wall, quantile(by_client[0], .5), quantile(by_client[0], .99))
"#;

pub fn package(work: &str, url: &str, clients: usize, time: Duration) -> Command {
    let mut command = python::command(PACKAGE);
    let url = python::sqlalchemy_url(url);
    command.args([work, &url, &clients.to_string()]);
    command.arg(time.as_secs_f64().to_string());
    command
}

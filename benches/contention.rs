//! Candidates who all call `elect` at once, on one namespace and on 32: throughput and the time of a call, on each database.

mod support;

use support::database::ALL;
use uuid::Uuid;

const NAMESPACES: [usize; 2] = [1, 32];
const CANDIDATES: [usize; 3] = [1, 8, 32];

fn main() {
    let mut criterion = support::criterion();
    for kind in ALL {
        let mut group = criterion.benchmark_group(format!("contention/{}", kind.label()));
        // On SQLite the writers of a whole file queue behind each other.
        group.sample_size(10);
        for namespaces in NAMESPACES {
            for candidates in CANDIDATES {
                let database = kind.fresh();
                let election = database.election(candidates);
                let ids: Vec<Uuid> = (0..candidates).map(|_| Uuid::new_v4()).collect();
                let names: Vec<String> = (0..namespaces).map(|n| format!("ns-{n}")).collect();
                let turns: Vec<_> = ids.iter().map(|_| Default::default()).collect();
                let name = format!("{candidates} candidates on {namespaces} namespaces");
                support::bench(&mut group, &name, candidates, |candidate| {
                    let turn = next(&turns[candidate]);
                    let ns = &names[(candidate + turn) % namespaces];
                    election.elect(ids[candidate], ns.as_str()).unwrap();
                });
            }
        }
        group.finish();
    }
    criterion.final_summary();
}

/// Each candidate goes from one namespace to the next.
fn next(turn: &std::sync::atomic::AtomicUsize) -> usize {
    turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

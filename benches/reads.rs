//! The reads: `is_leader`, `leader`, and `list_candidates` of 10, 1,000 and 100,000, on each database.

mod support;

use support::database::ALL;
use uuid::Uuid;

fn main() {
    let mut criterion = support::criterion();
    for kind in ALL {
        let mut group = criterion.benchmark_group(format!("reads/{}", kind.label()));
        let database = kind.fresh();
        let election = database.election(1);
        let me = Uuid::new_v4();
        election.elect(me, "x").unwrap();
        support::bench(&mut group, "is_leader", 1, |_| {
            assert!(election.is_leader(me, "x").unwrap());
        });
        support::bench(&mut group, "leader", 1, |_| {
            assert!(election.leader("x").unwrap().is_some());
        });
        group.sample_size(10);
        for candidates in [10, 1_000, support::many_or(100_000, 10_000)] {
            let ns = format!("crowd-{candidates}");
            database.fill(&ns, candidates);
            let name = format!("list_candidates/{candidates}");
            support::bench(&mut group, &name, 1, |_| {
                assert_eq!(
                    election.list_candidates(ns.as_str()).unwrap().len(),
                    candidates
                );
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

//! What a call answers by one statement is what the full transaction answers.

use std::time::Duration;

use leasehold::election::{
    ElectionError, elect, heartbeat, leader, list_candidates, register_candidate,
    unregister_candidate,
};
use uuid::Uuid;

use crate::database::{Database, Fresh};

on_every_database![one_history_gives_the_same_answers_by_either_way];

const NAMESPACES: [&str; 2] = ["x", "y"];

type Act<C> = fn(&mut C, Uuid, Option<&str>) -> Result<Option<Uuid>, ElectionError>;

/// Three databases live through one random history. A caller without a transaction gets the
/// shortcuts, and so does a handle, by what it expects; one whose transaction keeps a snapshot gets
/// the full transaction each time, as nothing shorter may be trusted there.
fn one_history_gives_the_same_answers_by_either_way<C: Database>() {
    let all = [(); 3].map(|()| Fresh::new::<C>());
    let handle = all[2].election();
    let [short, full, beside] = &mut [0, 1, 2].map(|which: usize| all[which].connect::<C>());
    full.run(C::LEVELS.last().expect("a level"));
    let candidates: Vec<Uuid> = (0..4).map(|_| Uuid::new_v4()).collect();
    let seed = Uuid::new_v4().as_u64_pair().0 | 1;
    let mut state = seed;
    let mut below = |end: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) % end
    };
    let mut renewals = 0;
    for step in 0..400 {
        let me = candidates[below(4) as usize];
        let ns = NAMESPACES[below(2) as usize];
        let kind = below(16);
        let told = format!("seed {seed}, step {step}: act {kind} of {me} in {ns}");
        let led = leader(short, Some(ns)).expect(&told);
        let act: Result<Act<C>, String> = match kind {
            0..=7 => Ok(|conn, me, ns| elect(conn, me, ns).map(Some)),
            8 => Ok(|conn, me, ns| heartbeat(conn, me, ns).map(|()| None)),
            9 => Ok(|conn, me, ns| register_candidate(conn, me, ns).map(|()| None)),
            10 => Ok(|conn, me, ns| unregister_candidate(conn, me, ns).map(|()| None)),
            // What time, an operator or another program may do.
            11 | 12 => Err(format!(
                "UPDATE gemstone_election_leader SET lease_expires_at = {} \
                 WHERE ns = '{ns}' AND leader_id IS NOT NULL",
                C::instant(-60)
            )),
            13 => Err(format!(
                "UPDATE gemstone_election_candidate SET expires_at = {} \
                 WHERE ns = '{ns}' AND candidate_id = '{me}'",
                C::instant(-60)
            )),
            14 => Err(format!(
                "DELETE FROM gemstone_election_candidate \
                 WHERE ns = '{ns}' AND candidate_id = '{me}'"
            )),
            _ => Err(format!(
                "DELETE FROM gemstone_election_leader WHERE ns = '{ns}'"
            )),
        };
        match act {
            Ok(act) => {
                let by_short = act(short, me, Some(ns)).expect(&told);
                let by_full = full.transaction(|conn| act(conn, me, Some(ns)));
                assert_eq!(by_short, by_full.expect(&told), "{told}");
                let by_handle = match kind {
                    0..=7 => handle.elect(me, ns).map(Some),
                    8 => handle.heartbeat(me, ns).map(|()| None),
                    9 => handle.register_candidate(me, ns).map(|()| None),
                    _ => handle.unregister_candidate(me, ns).map(|()| None),
                };
                assert_eq!(by_short, by_handle.expect(&told), "{told}");
                let renewed = led.is_some_and(|led| led.candidate_id == me);
                renewals += usize::from(kind < 8 && renewed);
            }
            Err(sql) => {
                short.run(&sql);
                full.run(&sql);
                beside.run(&sql);
            }
        }
        for ns in NAMESPACES {
            let by_short = what_holds(short, ns);
            for other in [&mut *full, &mut *beside] {
                let by_other = what_holds(other, ns);
                assert_eq!(by_short.0, by_other.0, "{told}");
                let apart = by_short.1.abs_diff(by_other.1);
                assert!(apart < Duration::from_secs(5), "{told}: {apart:?} apart");
            }
        }
    }
    assert!(
        renewals >= 10,
        "seed {seed}: {renewals} renewals show little"
    );
}

/// Who leads, who stands, and the last tenure; and what the lease has left.
fn what_holds<C: Database>(conn: &mut C, ns: &str) -> (String, Duration) {
    let leader = leader(conn, Some(ns)).expect("a look");
    let left = leader.map_or(Duration::ZERO, |leader| leader.remaining);
    let leader = leader.map(|leader| (leader.candidate_id, leader.term));
    let candidates = list_candidates(conn, Some(ns)).expect("a list");
    let last = format!(
        "FROM gemstone_election_tenure WHERE ns = '{ns}' AND term = \
         (SELECT max(term) FROM gemstone_election_tenure WHERE ns = '{ns}')"
    );
    let term = conn.number(&format!(
        "SELECT count(*) AS value FROM gemstone_election_tenure WHERE ns = '{ns}'"
    ));
    let tenure = match term {
        0 => String::new(),
        _ => ["leader_id", "coalesce(ended_by, '-')"]
            .map(|column| conn.text(&format!("SELECT {column} AS value {last}")))
            .join(" "),
    };
    (format!("{leader:?} {candidates:?} {term} {tenure}"), left)
}

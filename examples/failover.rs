//! Three processes compete for one lease on an SQLite file. The leader is killed, twice; each time
//! another takes over under a higher term, once the lease of the dead one has run out.
//!
//!     cargo run --example failover
//!
//! It needs no server and ends by itself.

use std::error::Error;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant};

use leasehold::election::{Election, Leader};
use uuid::Uuid;

const NS: &str = "nightly";
const LEASE: Duration = Duration::from_secs(2);
const BEAT: Duration = Duration::from_millis(500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    if let (Some(url), Some(id)) = (args.next(), args.next()) {
        return stand_as_candidate(&url, id.parse()?);
    }
    let dir = tempfile::tempdir()?;
    let url = format!("sqlite:{}", dir.path().join("failover.db").display());
    let election = open(&url)?;

    println!("three candidates, a lease of {LEASE:?}, a beat each {BEAT:?}");
    let mut candidates = Candidates::start(&url, 3)?;
    let mut leader = next_leader(&election, None)?;
    println!("{} leads under term {}", name(leader), leader.term);
    for _ in 0..2 {
        sleep(2 * BEAT);
        candidates.kill(leader.candidate_id)?;
        let killed_at = Instant::now();
        println!("{} is killed", name(leader));
        leader = next_leader(&election, Some(leader))?;
        println!(
            "{} leads under term {}; nobody led for {:.1} s",
            name(leader),
            leader.term,
            killed_at.elapsed().as_secs_f64()
        );
    }

    println!("\nterm  leader    ended by");
    for tenure in election.history(NS, 10)?.iter().rev() {
        let ended = tenure.ended_by.map_or("-".into(), |end| end.to_string());
        println!(
            "{:>4}  {:.8}  {ended}",
            tenure.term,
            tenure.leader_id.to_string()
        );
    }
    Ok(())
}

fn open(url: &str) -> Result<Election, Box<dyn Error>> {
    Ok(Election::builder(url).expire(LEASE).build()?)
}

/// The whole life of a candidate: to elect again and again.
fn stand_as_candidate(url: &str, me: Uuid) -> Result<(), Box<dyn Error>> {
    let election = open(url)?;
    loop {
        election.elect(me, NS)?;
        sleep(BEAT);
    }
}

/// Waits until somebody leads under a later term than `last`.
fn next_leader(election: &Election, last: Option<Leader>) -> Result<Leader, Box<dyn Error>> {
    let deadline = Instant::now() + 3 * LEASE;
    while Instant::now() < deadline {
        match election.leader(NS)? {
            Some(leader) if last.is_none_or(|last| leader.term > last.term) => return Ok(leader),
            _ => sleep(Duration::from_millis(20)),
        }
    }
    Err("nobody leads".into())
}

fn name(leader: Leader) -> String {
    format!("{:.8}", leader.candidate_id.to_string())
}

struct Candidates(Vec<(Uuid, Child)>);

impl Candidates {
    fn start(url: &str, count: usize) -> Result<Candidates, Box<dyn Error>> {
        let mut candidates = Candidates(Vec::new());
        for _ in 0..count {
            let id = Uuid::new_v4();
            let child = Command::new(std::env::current_exe()?)
                .args([url, &id.to_string()])
                .spawn()?;
            candidates.0.push((id, child));
        }
        Ok(candidates)
    }

    fn kill(&mut self, id: Uuid) -> Result<(), Box<dyn Error>> {
        for (_, child) in self.0.iter_mut().filter(|(candidate, _)| *candidate == id) {
            child.kill()?;
            child.wait()?;
        }
        Ok(())
    }
}

impl Drop for Candidates {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // One that is dead already is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

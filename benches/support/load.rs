//! Clients that call at once, and how long each call took.

use std::fmt;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

/// What a load came to: the time of each call, by client.
#[derive(Default)]
pub struct Measured {
    pub wall: Duration,
    pub by_client: Vec<Vec<Duration>>,
}

/// The same number of calls from each of `clients` threads.
pub fn calls(clients: usize, each: u64, call: impl Fn(usize) + Sync) -> Measured {
    run(clients, |client| {
        let timed = |_| {
            let start = Instant::now();
            call(client);
            start.elapsed()
        };
        (0..each).map(timed).collect()
    })
}

/// As many calls as `clients` threads make in `time`.
pub fn during(clients: usize, time: Duration, call: impl Fn(usize) + Sync) -> Measured {
    run(clients, |client| {
        let begin = Instant::now();
        let mut last = begin;
        let mut times = Vec::new();
        while last - begin < time {
            call(client);
            let now = Instant::now();
            times.push(now - last);
            last = now;
        }
        times
    })
}

fn run(clients: usize, work: impl Fn(usize) -> Vec<Duration> + Sync) -> Measured {
    if clients == 1 {
        let start = Instant::now();
        let by_client = vec![work(0)];
        return Measured {
            wall: start.elapsed(),
            by_client,
        };
    }
    let ready = Barrier::new(clients + 1);
    thread::scope(|scope| {
        let (work, ready) = (&work, &ready);
        let start_one = |client| {
            scope.spawn(move || {
                ready.wait();
                work(client)
            })
        };
        let threads: Vec<_> = (0..clients).map(start_one).collect();
        ready.wait();
        let start = Instant::now();
        let by_client = threads.into_iter().map(|thread| thread.join());
        let by_client = by_client.map(|times| times.expect("no client panics"));
        let by_client = by_client.collect();
        Measured {
            wall: start.elapsed(),
            by_client,
        }
    })
}

impl Measured {
    pub fn absorb(&mut self, other: Measured) {
        self.wall += other.wall;
        let clients = self.by_client.len().max(other.by_client.len());
        self.by_client.resize_with(clients, Vec::new);
        for (mine, more) in self.by_client.iter_mut().zip(other.by_client) {
            mine.extend(more);
        }
    }

    pub fn count(&self) -> usize {
        self.by_client.iter().map(Vec::len).sum()
    }

    pub fn per_second(&self) -> f64 {
        self.count() as f64 / self.wall.as_secs_f64()
    }

    pub fn times(&self) -> Vec<Duration> {
        self.by_client.concat()
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let times = self.times();
        write!(
            f,
            "{:.0} calls/s, p50 {:.3} ms, p99 {:.3} ms ({} calls)",
            self.per_second(),
            millis(quantile(&times, 0.5)),
            millis(quantile(&times, 0.99)),
            self.count()
        )
    }
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

pub fn quantile(times: &[Duration], part: f64) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() as f64 * part) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}

/// The middle of figures from alternating rounds.
pub fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

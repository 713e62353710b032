//! What `run` and its warden tell each other: one line each over a socket.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// From `run` to the warden.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Unless told otherwise: SIGTERM at the one time of the boot clock, SIGKILL at the other.
    Until { term: Duration, kill: Duration },
    /// Pass this signal on.
    Signal(i32),
    /// SIGKILL within so long, whatever else holds.
    Within(Duration),
}

/// From the warden to `run`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// The command runs, in the process group of this id.
    Started(i32),
    /// The command cannot be started: the exit code, and why.
    Refused(u8, String),
    /// The command was stopped, by this signal.
    Stopped(i32),
    /// This process outlives SIGKILL.
    Survives(i32),
    /// The command has ended, and nothing that it started is left.
    Ended(Outcome),
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Code(i32),
    Signal(i32),
}

impl Outcome {
    /// As a shell gives it.
    pub fn exit_code(self) -> u8 {
        match self {
            Outcome::Code(code) => code as u8,
            Outcome::Signal(signal) => 128_u8.wrapping_add(signal as u8),
        }
    }
}

/// A message that is one line.
pub trait Line: Sized {
    fn line(&self) -> String;
    fn parse(line: &str) -> Option<Self>;
}

impl Line for Order {
    fn line(&self) -> String {
        match self {
            Order::Until { term, kill } => format!("until {} {}", term.as_nanos(), kill.as_nanos()),
            Order::Signal(signal) => format!("signal {signal}"),
            Order::Within(time) => format!("within {}", time.as_nanos()),
        }
    }

    fn parse(line: &str) -> Option<Order> {
        let nanos = |text: &str| text.parse().ok().map(Duration::from_nanos);
        let (word, rest) = line.split_once(' ')?;
        match word {
            "until" => {
                let (term, kill) = rest.split_once(' ')?;
                Some(Order::Until {
                    term: nanos(term)?,
                    kill: nanos(kill)?,
                })
            }
            "signal" => Some(Order::Signal(rest.parse().ok()?)),
            "within" => Some(Order::Within(nanos(rest)?)),
            _ => None,
        }
    }
}

impl Line for Report {
    fn line(&self) -> String {
        match self {
            Report::Started(pid) => format!("started {pid}"),
            Report::Refused(code, why) => format!("refused {code} {}", why.replace('\n', " ")),
            Report::Stopped(signal) => format!("stopped {signal}"),
            Report::Survives(pid) => format!("survives {pid}"),
            Report::Ended(Outcome::Code(code)) => format!("exited {code}"),
            Report::Ended(Outcome::Signal(signal)) => format!("killed {signal}"),
        }
    }

    fn parse(line: &str) -> Option<Report> {
        let (word, rest) = line.split_once(' ')?;
        let number = || rest.parse().ok();
        match word {
            "started" => number().map(Report::Started),
            "refused" => {
                let (code, why) = rest.split_once(' ')?;
                Some(Report::Refused(code.parse().ok()?, why.to_owned()))
            }
            "stopped" => number().map(Report::Stopped),
            "survives" => number().map(Report::Survives),
            "exited" => number().map(|code| Report::Ended(Outcome::Code(code))),
            "killed" => number().map(|signal| Report::Ended(Outcome::Signal(signal))),
            _ => None,
        }
    }
}

/// Sends; that the other side is gone is learned from its end of the socket.
pub fn send(mut link: &UnixStream, message: &impl Line) {
    let _ = link.write_all(format!("{}\n", message.line()).as_bytes());
}

/// Hands each message to `hear`, until the other side is gone.
pub fn listen<T: Line>(link: UnixStream, mut hear: impl FnMut(T)) {
    let lines = BufReader::new(link).lines().map_while(Result::ok);
    lines.filter_map(|line| T::parse(&line)).for_each(&mut hear);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_arrives_as_it_was_sent() {
        let (term, kill) = (Duration::from_nanos(7), Duration::from_secs(9));
        for order in [
            Order::Until { term, kill },
            Order::Signal(15),
            Order::Within(kill),
        ] {
            assert_eq!(Order::parse(&order.line()), Some(order));
        }
        let reports = [
            Report::Started(4),
            Report::Refused(127, "no such file: \"a b\"".into()),
            Report::Stopped(20),
            Report::Survives(5),
            Report::Ended(Outcome::Code(7)),
            Report::Ended(Outcome::Signal(9)),
        ];
        for report in reports {
            assert_eq!(Report::parse(&report.line()), Some(report));
        }
    }
}

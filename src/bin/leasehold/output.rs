//! What people see on a terminal, and what programs read from a pipe.

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use anstyle::{AnsiColor, Style};
use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{ColumnConstraint, ContentArrangement, Table, Width, presets};

use crate::program::failure::{ERROR, Failure};

pub const GOOD: Style = AnsiColor::Green.on_default();
pub const WARN: Style = AnsiColor::Yellow.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const DIM: Style = Style::new().dimmed();
pub const HEAD: Style = Style::new().bold();
pub const PLAIN: Style = Style::new();

/// Prints to stdout; colours are kept only where they can be shown and are wanted (`NO_COLOR`).
pub fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = anstream::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Ok(()) => Ok(()),
        // Whoever read has read enough.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(error) => Err(Failure::new(
            ERROR,
            format!("the output cannot be written: {error}"),
            "check where it goes",
        )),
    }
}

pub fn print_json(value: &serde_json::Value) -> Result<(), Failure> {
    print(&format!("{value:#}"))
}

/// A line for people, on stderr. That nobody reads it is no reason to stop.
pub fn say(text: &str) {
    let mut stderr = anstream::stderr().lock();
    let _ = writeln!(stderr, "{text}").and_then(|()| stderr.flush());
}

/// Whether nobody reads stdout any more, which else only shows when there is something to write.
pub fn reader_is_gone() -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let stdout = std::io::stdout();
    let mut asked = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut asked, Some(&at_once)).is_ok()
        && asked[0]
            .revents()
            .intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL)
}

pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

/// Columns and rows of the terminal that stdout is.
pub fn terminal_size() -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(std::io::stdout()).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then(|| (size.ws_col.into(), size.ws_row.into()))
}

/// A table without rules, one line a row; each row in a style of its own.
pub struct Grid {
    table: Table,
    styles: Vec<Style>,
}

impl Grid {
    pub fn new(head: &[&str]) -> Grid {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Disabled)
            .set_header(head);
        Grid {
            table,
            styles: vec![HEAD],
        }
    }

    pub fn row(&mut self, style: Style, cells: Vec<String>) {
        let cells = cells.iter().map(|cell| one_line(cell));
        self.table.add_row(cells);
        self.styles.push(style);
    }

    pub fn lines(mut self) -> Vec<String> {
        for column in self.table.column_iter_mut() {
            column
                .set_padding((0, 2))
                .set_constraint(ColumnConstraint::LowerBoundary(Width::Fixed(1)));
        }
        let text = self.table.to_string();
        let lines = text.lines().zip(self.styles);
        lines
            .map(|(line, style)| {
                let line = line.trim();
                // No code where there is no style: comparing and cutting stays simple.
                match style == PLAIN {
                    true => line.to_owned(),
                    false => format!("{style}{line}{style:#}"),
                }
            })
            .collect()
    }
}

/// Names may hold what a terminal would obey.
fn one_line(text: &str) -> String {
    let shown = |character: char| match character.is_control() {
        true => '\u{fffd}',
        false => character,
    };
    text.chars().map(shown).collect()
}

/// A duration for people, in its two largest units.
pub fn human(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (days, hours, minutes) = (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60);
    match seconds {
        _ if duration < Duration::from_millis(10) => format!("{} ms", duration.as_millis()),
        0..10 => format!("{:.1} s", duration.as_secs_f64()),
        10..60 => format!("{seconds} s"),
        60..3600 => format!("{minutes} min {} s", seconds % 60),
        3600..86400 => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// The time between two instants; zero where the second is the earlier one.
pub fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

/// An instant for people, to the second.
pub fn clock(instant: DateTime<Utc>) -> String {
    instant.format("%Y-%m-%d %H:%M:%S").to_string()
}

/// An instant for programs, to the microsecond.
pub fn exact(instant: DateTime<Utc>) -> String {
    instant.to_rfc3339_opts(SecondsFormat::Micros, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_well() {
        let cases = [
            (3, "3 ms"),
            (500, "0.5 s"),
            (9_940, "9.9 s"),
            (59_999, "59 s"),
            (125_000, "2 min 5 s"),
            (3_600_000, "1 h 0 min"),
            (90_000_000, "1 d 1 h"),
        ];
        for (millis, text) in cases {
            assert_eq!(human(Duration::from_millis(millis)), text);
        }
    }

    #[test]
    fn a_grid_is_plain_lines_without_trailing_space() {
        let mut grid = Grid::new(&["A", "B"]);
        grid.row(PLAIN, vec!["日本".into(), "x\x1b[2J".into()]);
        let lines = grid.lines();
        assert_eq!(lines[1], "日本  x\u{fffd}[2J");
    }
}

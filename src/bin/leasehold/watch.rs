//! `leasehold status --watch`: the table again and again, in place.

use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use crate::program::args::StatusArgs;
use crate::program::failure::Failure;
use crate::program::output::{self, DIM, WARN, print};
use crate::program::status::{Snapshot, Watcher};

/// The shortest pause: a watcher is no load test.
const SHORTEST: Duration = Duration::from_millis(100);

type Look = Result<Snapshot, Failure>;

/// Ends by an error of the first look or of the output, when nobody reads it any more, and by Ctrl-C.
pub fn watch(args: StatusArgs) -> Result<u8, Failure> {
    let interval = args.interval.max(SHORTEST);
    let (timeout, json) = (args.answer.timeout, args.answer.json);
    let mut looks = Looks::start(args, interval);
    let mut screen = Screen::default();
    let mut last = looks.next(timeout).ok_or_else(|| silent(timeout))??;
    let mut trouble = None;
    let mut fresh = true;
    while !output::reader_is_gone() {
        if output::stdout_is_terminal() && !json {
            screen.draw(&last.lines(), trouble.as_ref(), interval)?;
        } else if fresh {
            plain(&last, json)?;
        }
        match looks.next(interval.saturating_mul(3).max(timeout)) {
            Some(Ok(seen)) => {
                (last, trouble, fresh) = (seen, None, true);
            }
            Some(Err(failure)) => {
                report_once(&trouble, &failure);
                (trouble, fresh) = (Some(failure.to_string()), false);
            }
            None => (trouble, fresh) = (Some(silent(timeout).to_string()), false),
        }
    }
    Ok(0)
}

fn report_once(before: &Option<String>, failure: &Failure) {
    if !output::stdout_is_terminal() && before.is_none() {
        failure.report();
    }
}

/// For a pipe: one JSON object a line, or one table a block.
fn plain(seen: &Snapshot, json: bool) -> Result<(), Failure> {
    match json {
        true => print(&seen.json().to_string()),
        false => print(&format!("{}\n", seen.lines().join("\n"))),
    }
}

fn silent(timeout: Duration) -> Failure {
    Failure::new(
        crate::program::failure::ERROR,
        format!(
            "the database has not answered for {}",
            output::human(timeout)
        ),
        "check that it runs and can be reached",
    )
}

/// Looks from a thread of its own, so that a silent database does not freeze the screen.
struct Looks {
    receiver: Receiver<Look>,
}

impl Looks {
    fn start(args: StatusArgs, interval: Duration) -> Looks {
        let (sender, receiver) = mpsc::sync_channel(0);
        std::thread::spawn(move || {
            let mut watcher = None;
            loop {
                let began = Instant::now();
                let opened = match watcher.take() {
                    Some(watcher) => Ok(watcher),
                    None => Watcher::open(&args.database, args.ns.clone()),
                };
                let look = opened.and_then(|mut open| {
                    let seen = open.look();
                    // After an error the connection may be a dead one.
                    if seen.is_ok() {
                        watcher = Some(open);
                    }
                    seen
                });
                if sender.send(look).is_err() {
                    return;
                }
                std::thread::sleep(interval.saturating_sub(began.elapsed()));
            }
        });
        Looks { receiver }
    }

    fn next(&mut self, patience: Duration) -> Option<Look> {
        self.receiver.recv_timeout(patience).ok()
    }
}

/// What is on the terminal, to be drawn over.
#[derive(Default)]
struct Screen {
    drawn: usize,
    size: Option<(usize, usize)>,
}

impl Screen {
    fn draw(
        &mut self,
        table: &[String],
        trouble: Option<&String>,
        interval: Duration,
    ) -> Result<(), Failure> {
        let size = output::terminal_size().unwrap_or((80, 24));
        let (columns, rows) = size;
        let mut lines: Vec<String> = table.to_vec();
        let foot = trouble.map_or(1, |_| 3);
        // A line that scrolls away cannot be drawn over.
        let room = rows.saturating_sub(foot + 2).max(2);
        if lines.len() > room {
            let more = lines.len() - room + 1;
            lines.truncate(room - 1);
            lines.push(format!(
                "… {more} more; name one with --ns, or enlarge the window"
            ));
        }
        lines.push(String::new());
        if let Some(trouble) = trouble {
            lines.extend(trouble.lines().map(|line| format!("{WARN}{line}{WARN:#}")));
        }
        let every = output::human(interval);
        let now = chrono::Local::now().format("%H:%M:%S");
        lines.push(format!("{DIM}{now}, every {every}; Ctrl-C ends{DIM:#}"));
        let mut text = String::new();
        if self.size.replace(size).is_some_and(|before| before != size) {
            // The terminal has broken the lines anew, and they are nowhere known.
            text.push_str("\x1b[H\x1b[2J");
        } else if self.drawn > 0 {
            text.push_str(&format!("\x1b[{}A", self.drawn));
        }
        self.drawn = lines.len();
        // Each line is cleared to its end, and what is below the last one too. Then nothing flickers.
        let cut = lines
            .iter()
            .map(|line| format!("\r{}\x1b[K", cut(line, columns)));
        text.push_str(&cut.collect::<Vec<_>>().join("\n"));
        text.push_str("\n\x1b[J");
        write_raw(&text)
    }
}

/// Colours may be stripped, movements of the cursor may not: this is a terminal.
fn write_raw(text: &str) -> Result<(), Failure> {
    use std::io::Write;
    let wants_colour =
        anstream::AutoStream::choice(&std::io::stdout()) != anstream::ColorChoice::Never;
    let text = if wants_colour {
        text.to_owned()
    } else {
        without_styles(text)
    };
    let mut stdout = std::io::stdout().lock();
    let written = stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush());
    written.map_err(|error| {
        let what = format!("the table cannot be drawn: {error}");
        Failure::new(crate::program::failure::ERROR, what, "check the terminal")
    })
}

fn without_styles(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("\x1b[") {
        let end = rest[at + 2..]
            .find(|c: char| c.is_ascii_alphabetic())
            .map_or(rest.len(), |end| at + 3 + end);
        plain.push_str(&rest[..at]);
        if !rest[at..end].ends_with('m') {
            plain.push_str(&rest[at..end]);
        }
        rest = &rest[end..];
    }
    plain + rest
}

/// The first `columns` characters of a styled line, so that it does not wrap.
fn cut(line: &str, columns: usize) -> String {
    let mut left = columns;
    let mut escape = false;
    let mut shown = String::with_capacity(line.len());
    for character in line.chars() {
        if character == '\x1b' {
            escape = true;
        }
        let width = if escape { 0 } else { comfy_width(character) };
        if width <= left {
            left -= width;
            shown.push(character);
        } else {
            left = 0;
        }
        escape = escape && !character.is_ascii_alphabetic();
    }
    shown
}

/// Wide characters take two columns: counted generously, a line is cut early rather than wrapped.
fn comfy_width(character: char) -> usize {
    if character < '\u{1100}' { 1 } else { 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_without_losing_its_last_code() {
        assert_eq!(cut("\x1b[1mabcdef\x1b[0m", 3), "\x1b[1mabc\x1b[0m");
        assert_eq!(cut("日本語", 4), "日本");
    }

    #[test]
    fn without_colour_the_cursor_still_moves() {
        assert_eq!(
            without_styles("\x1b[3A\x1b[32mx\x1b[0m\x1b[K"),
            "\x1b[3Ax\x1b[K"
        );
    }
}

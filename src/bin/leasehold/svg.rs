//! The history as a picture: one lane for each candidate, a bar for each tenure, a hatched band where nobody led.
//!
//! Many tenures are broken into rows, like a text, so that each can carry its term. Within a row every bar and gap gets
//! the little room it needs to be seen, and what is left is shared in proportion to time.

use std::fmt::Write;
use std::time::Duration;

use chrono::{DateTime, Utc};
use uuid::Uuid;

use crate::program::history::{End, Tenure};
use crate::program::output::{between, clock, human};

const WIDTH: f64 = 1200.0;
const LEFT: f64 = 300.0;
const RIGHT: f64 = 30.0;
const TOP: f64 = 96.0;
const LANE: f64 = 26.0;
const BAR: f64 = 18.0;
const AXIS: f64 = 40.0;
const PER_ROW: usize = 22;
const GAP_WIDTH: f64 = 5.0;
/// Of a digit, at the size the labels have.
const DIGIT: f64 = 6.8;
/// A change of leader within this is no gap.
const NO_GAP: Duration = Duration::from_millis(1);

/// A stretch of a row: a tenure, or the time without one that follows it.
struct Piece<'a> {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    tenure: Option<&'a Tenure>,
    x: f64,
    width: f64,
}

pub fn timeline(ns: &str, tenures: &[Tenure], now: DateTime<Utc>) -> String {
    let mut body = String::new();
    let mut y = TOP;
    let order = order(tenures);
    let rows: Vec<&[Tenure]> = tenures.chunks(PER_ROW).collect();
    for (index, row) in rows.iter().enumerate() {
        let until = rows.get(index + 1).map_or(now, |next| next[0].began);
        y = draw_row(&mut body, &lanes(&order, row), row, until, y);
    }
    if tenures.is_empty() {
        let _ = write!(
            body,
            r##"<text class="big" x="24" y="{y}">Nobody has led this namespace yet.</text>"##
        );
        y += AXIS;
    }
    format!("{}{}{body}</svg>", head(y), title(ns, tenures))
}

fn head(height: f64) -> String {
    format!(
        r##"<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" font-family="DejaVu Sans, Verdana, Helvetica, sans-serif" font-size="11">
<style>
.big{{font-size:17px;font-weight:bold;fill:#1b1f24}} .note{{fill:#57606a}} .id{{font-family:DejaVu Sans Mono,Consolas,monospace;fill:#1b1f24}}
.lane{{fill:#f3f5f8}} .term{{fill:#fff;text-anchor:middle;font-weight:bold}} .tick{{fill:#57606a;text-anchor:middle}}
.leads{{fill:#1a7f37}} .resigned{{fill:#3566b8}} .expired{{fill:#bc5c00}} .superseded{{fill:#b3261e}} .unknown{{fill:#6e7781}}
</style>
<defs><pattern id="gap" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect width="6" height="6" fill="#fff3f2"/><rect width="2" height="6" fill="#e5534b"/></pattern></defs>
<rect width="{WIDTH}" height="{height}" fill="#fff"/>
"##
    )
}

/// What it is about, in words, and what the colours mean.
fn title(ns: &str, tenures: &[Tenure]) -> String {
    let mut text = format!(
        r##"<text class="big" x="24" y="34">Leaders of “{}”</text>"##,
        escaped(&shortened(ns))
    );
    if let (Some(first), Some(last)) = (tenures.first(), tenures.last()) {
        let count = match tenures.len() {
            1 => "1 tenure".to_owned(),
            many => format!("{many} tenures"),
        };
        let (from, to) = (clock(first.began), clock(last.ended));
        let _ = write!(
            text,
            r##"<text class="note" x="24" y="54">{count}, {from} to {to} UTC; short ones are drawn wider than they were</text>"##
        );
    }
    let mut x = 24.0;
    for end in [
        End::Leads,
        End::Resigned,
        End::Expired,
        End::Superseded,
        End::Unknown,
    ] {
        let word = if end == End::Unknown {
            "end unknown"
        } else {
            end.word()
        };
        let _ = write!(
            text,
            r##"<rect class="{}" x="{x}" y="66" width="12" height="12" rx="2"/><text class="note" x="{}" y="76">{word}</text>"##,
            end.word(),
            x + 17.0
        );
        x += 105.0;
    }
    let _ = write!(
        text,
        r##"<rect fill="url(#gap)" x="{x}" y="66" width="12" height="12"/><text class="note" x="{}" y="76">nobody led</text>"##,
        x + 17.0
    );
    text.push('\n');
    text
}

/// Draws one row from `y` on, and says where the next may begin.
fn draw_row(
    body: &mut String,
    lanes: &[Uuid],
    tenures: &[Tenure],
    until: DateTime<Utc>,
    y: f64,
) -> f64 {
    let height = LANE * lanes.len() as f64;
    for (index, id) in lanes.iter().enumerate() {
        let top = y + LANE * index as f64;
        let _ = writeln!(
            body,
            r##"<rect class="lane" x="{LEFT}" y="{:.1}" width="{}" height="{}"/><text class="id" x="24" y="{:.1}">{id}</text>"##,
            top + 1.0,
            WIDTH - LEFT - RIGHT,
            LANE - 2.0,
            top + 17.0
        );
    }
    let pieces = laid_out(tenures, until);
    for piece in &pieces {
        match piece.tenure {
            Some(tenure) => {
                let lane = lanes
                    .iter()
                    .position(|id| *id == tenure.leader)
                    .unwrap_or_default();
                draw_bar(
                    body,
                    piece,
                    tenure,
                    y + LANE * lane as f64 + (LANE - BAR) / 2.0,
                );
            }
            None => {
                let lasted = human(between(piece.from, piece.to));
                let _ = writeln!(
                    body,
                    r##"<rect fill="url(#gap)" x="{:.1}" y="{y}" width="{:.1}" height="{height}"><title>nobody led for {lasted}</title></rect>"##,
                    piece.x, piece.width
                );
            }
        }
    }
    draw_axis(body, &pieces, y + height);
    y + height + AXIS
}

fn draw_bar(body: &mut String, piece: &Piece<'_>, tenure: &Tenure, y: f64) {
    let (class, term) = (tenure.end.word(), tenure.term);
    let (x, width) = (piece.x, (piece.width - 1.0).max(1.0));
    let (from, to, lasted) = (clock(piece.from), clock(piece.to), human(tenure.lasted()));
    let _ = writeln!(
        body,
        r##"<g><title>term {term}: {} from {from} to {to} ({lasted}), {class}</title><rect class="{class}" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}" rx="3"/><text class="term" x="{:.1}" y="{:.1}">{term}</text></g>"##,
        tenure.leader,
        x + width / 2.0,
        y + 13.0,
    );
}

/// The time at both ends, and between them wherever a piece begins and there is room.
fn draw_axis(body: &mut String, pieces: &[Piece<'_>], y: f64) {
    let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else {
        return;
    };
    let (end, right) = (last.to, last.x + last.width);
    let mut tick = |x: f64, text: &str, anchor: &str| {
        let _ = writeln!(
            body,
            r##"<path d="M{x:.1} {y:.1}v4" stroke="#8c959f"/><text class="tick" style="text-anchor:{anchor}" x="{x:.1}" y="{:.1}">{text}</text>"##,
            y + 15.0
        );
    };
    tick(first.x, &clock(first.from), "start");
    let mut free_from = first.x + 190.0;
    for piece in &pieces[1..] {
        if piece.x > free_from && piece.x < right - 190.0 {
            let same_day = piece.from.date_naive() == first.from.date_naive();
            let text = if same_day {
                piece.from.format("%H:%M:%S")
            } else {
                piece.from.format("%m-%d %H:%M")
            };
            tick(piece.x, &text.to_string(), "middle");
            free_from = piece.x + 100.0;
        }
    }
    if right - first.x > 280.0 {
        tick(right, &clock(end), "end");
    }
}

/// The candidates, in the order in which they first led.
fn order(tenures: &[Tenure]) -> Vec<Uuid> {
    let mut order = Vec::new();
    for tenure in tenures {
        if !order.contains(&tenure.leader) {
            order.push(tenure.leader);
        }
    }
    order
}

/// The candidates of a row, in the order that all rows share.
fn lanes(order: &[Uuid], row: &[Tenure]) -> Vec<Uuid> {
    let leads = |id: &&Uuid| row.iter().any(|tenure| tenure.leader == **id);
    order.iter().filter(leads).copied().collect()
}

fn laid_out(tenures: &[Tenure], until: DateTime<Utc>) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let ends = tenures.iter().skip(1).map(|next| next.began).chain([until]);
    for (tenure, next) in tenures.iter().zip(ends) {
        let piece = |from, to, tenure| Piece {
            from,
            to,
            tenure,
            x: 0.0,
            width: 0.0,
        };
        pieces.push(piece(tenure.began, tenure.ended, Some(tenure)));
        if between(tenure.ended, next) > NO_GAP {
            pieces.push(piece(tenure.ended, next, None));
        }
    }
    let least = |piece: &Piece<'_>| match piece.tenure {
        Some(tenure) => tenure.term.to_string().len() as f64 * DIGIT + 10.0,
        None => GAP_WIDTH,
    };
    let length = |piece: &Piece<'_>| between(piece.from, piece.to).as_secs_f64();
    let needed: f64 = pieces.iter().map(least).sum();
    let time: f64 = pieces.iter().map(length).sum();
    let spare = (WIDTH - LEFT - RIGHT - needed).max(0.0);
    let squeeze = ((WIDTH - LEFT - RIGHT) / needed).min(1.0);
    let mut x = LEFT;
    for piece in &mut pieces {
        let share = if time > 0.0 {
            length(piece) / time
        } else {
            0.0
        };
        piece.x = x;
        piece.width = least(piece) * squeeze + spare * share;
        x += piece.width;
    }
    pieces
}

/// A namespace may be 255 characters long, and the title is one line.
fn shortened(ns: &str) -> String {
    match ns.chars().count() {
        0..=70 => ns.to_owned(),
        _ => ns.chars().take(69).chain(['…']).collect(),
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

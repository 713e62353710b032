//! What is left of candidates that have gone: their registrations, which nobody refreshes.
//!
//! A registration is removed when it ended more than a day ago. No index finds those (an index on
//! an instant would make every heartbeat dearer), and nobody reads a whole table for them. Instead,
//! a few neighbouring rows are looked at each time, from a place drawn by chance: [`A_FEW`] by
//! whoever registers anew, and [`MANY`] once a minute by an `Election` with guards. New rows pay for
//! old ones, so what is dead stays a small part of what is alive.

use std::time::SystemTime;

use uuid::Uuid;

use super::ElectionError;
use super::store::{Args, Store};

/// Rows looked at for each new registration.
pub(crate) const A_FEW: i64 = 16;

/// Rows looked at once a minute.
pub(crate) const MANY: i64 = 512;

/// Rows removed at once: the beats of an `Election` wait so long.
const MOST: usize = 64;

/// Looks at so many rows from a place in `ns` onwards, and removes those that are long over.
///
/// # Errors
///
/// Those of the database. Nothing depends on the removal: the next sweep finds what this one left.
pub(crate) fn sweep<S: Store>(store: &mut S, ns: &str, rows: i64) -> Result<(), ElectionError> {
    let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = since_1970.unwrap_or_default().as_millis();
    let from = a_place(Uuid::new_v4(), now).to_string();
    let near = Args {
        ns: a_beginning(ns, Uuid::new_v4()),
        text: &from,
        expire: rows,
        ..Args::default()
    };
    let mut dead = store.dead_near(&near)?;
    dead.truncate(MOST);
    if dead.is_empty() {
        return Ok(());
    }
    store.in_transaction(|store| {
        for (ns, me) in &dead {
            let one = Args {
                ns,
                me,
                ..Args::default()
            };
            store.forget(&one)?;
        }
        Ok(())
    })
}

/// Half of the time the namespace itself; otherwise a name that begins like it and comes before, as
/// last year's does where names hold a date.
fn a_beginning(ns: &str, chance: Uuid) -> &str {
    let chance = chance.as_u128();
    if chance & 1 == 0 {
        return ns;
    }
    let drawn = (chance >> 1) % ns.chars().count().max(1) as u128;
    let end = ns.char_indices().nth(drawn as usize);
    &ns[..end.map_or(0, |(at, _)| at)]
}

/// Half of the time any id; otherwise one that a clock gave some time ago, which may be a second
/// or years: ids of version 7 lie close together.
///
/// `now` is in milliseconds since 1970, which those ids begin with, in 48 bits.
fn a_place(chance: Uuid, now: u128) -> Uuid {
    let chance = chance.as_u128();
    if chance & 1 == 0 {
        return Uuid::from_u128(chance);
    }
    // Every order of magnitude as often as the others, from milliseconds to centuries.
    let ago = (chance >> 8) % (2 << ((chance >> 1) % 42));
    Uuid::from_u128(now.saturating_sub(ago) << 80)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_beginning_of_a_name_is_drawn() {
        let drawn: std::collections::BTreeSet<&str> = (0..1000)
            .map(|_| a_beginning("jöb", Uuid::new_v4()))
            .collect();
        assert_eq!(
            drawn.into_iter().collect::<Vec<_>>(),
            ["", "j", "jö", "jöb"]
        );
        assert!(a_beginning("", Uuid::new_v4()).is_empty());
    }

    #[test]
    fn every_part_of_a_namespace_is_drawn() {
        let now = 1_800_000_000_000;
        let drawn = (0..4000).map(|_| a_place(Uuid::new_v4(), now).as_u128());
        let drawn: Vec<u128> = drawn.collect();
        for sixteenth in 0..16 {
            assert!(drawn.iter().any(|place| place >> 124 == sixteenth));
        }
        // Of ids that count time: those of the last minute, hour, day, year.
        for millis in [60_000, 3_600_000, 86_400_000, 31_536_000_000_u128] {
            let of_the_time = drawn
                .iter()
                .filter(|place| (now - millis..=now).contains(&(*place >> 80)));
            assert!(of_the_time.count() > 20, "{millis} ms");
        }
    }
}

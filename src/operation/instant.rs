//! Instants as a record can hold them: UTC, whole microseconds, years 1 to 9999.

use chrono::{DateTime, Datelike, SecondsFormat, TimeDelta, Timelike, Utc};

use super::fault::InvalidInstant;

/// The instant as it will be read back: the part below a microsecond is cut off.
///
/// Cutting always goes towards the past, so two readings keep their order and `acquired_at == observed_at`
/// survives when both came from one reading of the clock.
pub(super) fn normalize(instant: DateTime<Utc>) -> Result<DateTime<Utc>, InvalidInstant> {
    // Year first: chrono's range is wider, and formatting a year beyond 9999 would write no RFC 3339.
    if !(1..=9999).contains(&instant.year()) {
        return Err(InvalidInstant::OutOfRange);
    }
    let nanos = instant.nanosecond();
    if nanos >= 1_000_000_000 {
        return Err(InvalidInstant::LeapSecond);
    }
    instant
        .checked_sub_signed(TimeDelta::nanoseconds(i64::from(nanos % 1_000)))
        .ok_or(InvalidInstant::OutOfRange)
}

/// The text of a [normalized](normalize) instant: no fraction when it is zero, else six digits.
pub(super) fn format(instant: DateTime<Utc>) -> String {
    let digits = match instant.nanosecond() {
        0 => SecondsFormat::Secs,
        _ => SecondsFormat::Micros,
    };
    instant.to_rfc3339_opts(digits, true)
}

/// Reads RFC 3339 in UTC. `+00:00` counts as UTC too; more digits than microseconds do not fit.
pub(super) fn parse(text: &str) -> Result<DateTime<Utc>, InvalidInstant> {
    let instant = DateTime::parse_from_rfc3339(text).map_err(|_| InvalidInstant::NotRfc3339)?;
    if instant.offset().local_minus_utc() != 0 {
        return Err(InvalidInstant::NotUtc);
    }
    let instant = instant.to_utc();
    match normalize(instant)? {
        whole if whole == instant => Ok(instant),
        _ => Err(InvalidInstant::TooPrecise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_what_the_published_package_writes() {
        for text in [
            "2026-01-02T03:04:05Z",
            "2026-01-02T03:04:05.000007Z",
            "1969-01-01T00:00:00.120000Z",
            "0001-01-01T00:00:00Z",
            "9999-12-31T23:59:59.999999Z",
        ] {
            assert_eq!(format(parse(text).unwrap()), text);
        }
    }

    #[test]
    fn what_a_record_cannot_hold_is_refused() {
        for (text, fault) in [
            ("", InvalidInstant::NotRfc3339),
            ("2026-01-02", InvalidInstant::NotRfc3339),
            ("2026-01-02T03:04:05", InvalidInstant::NotRfc3339),
            ("2026-02-30T03:04:05Z", InvalidInstant::NotRfc3339),
            ("2026-01-02T03:04:05+01:00", InvalidInstant::NotUtc),
            ("2026-01-02T03:04:05.0000001Z", InvalidInstant::TooPrecise),
            ("2016-12-31T23:59:60Z", InvalidInstant::LeapSecond),
            ("0000-01-01T00:00:00Z", InvalidInstant::OutOfRange),
        ] {
            assert_eq!(parse(text), Err(fault), "{text}");
        }
    }

    #[test]
    fn the_part_below_a_microsecond_is_cut_towards_the_past() {
        let before_1970 = DateTime::from_timestamp(-1, 999_999_999).unwrap();
        assert_eq!(
            format(normalize(before_1970).unwrap()),
            "1969-12-31T23:59:59.999999Z"
        );
    }

    #[test]
    fn extreme_dates_are_refused_without_a_panic() {
        for extreme in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
            assert_eq!(normalize(extreme), Err(InvalidInstant::OutOfRange));
        }
    }
}

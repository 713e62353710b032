//! Transactions that a tenure must outlive.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use super::calls::{self, Call};
use super::seat::Seat;
use super::{ElectionConnection, ElectionError, Expire, Term};

/// Runs `work` in a transaction on `conn` that holds the tenure under `term`.
pub(crate) fn transaction<C, T, E>(
    conn: &mut C,
    seat: &Seat,
    expire: Duration,
    term: Term,
    work: impl FnOnce(&mut C) -> Result<T, E>,
) -> Result<T, E>
where
    C: ElectionConnection,
    E: From<ElectionError> + From<diesel::result::Error>,
{
    let expire = Expire::from_duration(expire)?;
    let call = Call::by("transaction", seat.me, Some(&seat.ns), expire)?;
    let mut panicked = None;
    let outcome = conn.transaction(|conn| {
        calls::fence(conn.raw(), &call, term)?;
        // A panic is held until the transaction has been rolled back: the connection outlives it.
        match catch_unwind(AssertUnwindSafe(|| work(conn))) {
            Ok(outcome) => outcome,
            Err(panic) => {
                panicked = Some(panic);
                Err(diesel::result::Error::RollbackTransaction.into())
            }
        }
    });
    match panicked {
        Some(panic) => resume_unwind(panic),
        None => outcome,
    }
}

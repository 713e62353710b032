//! The documented functions, over any store: what is read, what the rule says, what is written.

use std::time::Duration;

use uuid::Uuid;
use uuid::fmt::Hyphenated;

use super::classify::Class;
use super::expected::Expected;
use super::namespace::Namespace;
use super::retry::Budget;
use super::rule::{Claim, Decision, Standing, decide};
use super::store::{Args, Glance, Lock, Store};
use super::{
    ElectionCandidate, ElectionError, ElectionLeader, Ending, Expire, Leader, TenureRecord, Term,
    migrate, model, sweep,
};

/// The input of one call, checked.
pub(crate) struct Call<'a> {
    name: &'static str,
    ns: Namespace<'a>,
    me: Uuid,
    me_text: [u8; Hyphenated::LENGTH],
    expire: Expire,
    budget: Option<Duration>,
}

impl<'a> Call<'a> {
    /// A call about a namespace, made by no candidate in particular.
    pub(crate) fn new(
        name: &'static str,
        ns: Option<&'a str>,
        expire: Expire,
    ) -> Result<Self, ElectionError> {
        Call::by(name, Uuid::nil(), ns, expire)
    }

    /// A call that `me` makes.
    pub(crate) fn by(
        name: &'static str,
        me: Uuid,
        ns: Option<&'a str>,
        expire: Expire,
    ) -> Result<Self, ElectionError> {
        let mut me_text = [0; Hyphenated::LENGTH];
        me.hyphenated().encode_lower(&mut me_text);
        Ok(Call {
            name,
            ns: Namespace::new(ns)?,
            me,
            me_text,
            expire,
            budget: None,
        })
    }

    /// The same call with a time budget of its own.
    pub(crate) fn within(self, budget: Option<Duration>) -> Self {
        Call { budget, ..self }
    }

    pub(crate) fn budget<S: Store>(&self) -> Budget {
        self.budget.map_or_else(
            || Budget::for_lease(self.expire, S::PATIENCE),
            Budget::exactly,
        )
    }

    pub(crate) fn ns(&self) -> &'a str {
        self.ns.as_str()
    }

    fn args(&self) -> Args<'_> {
        Args {
            ns: self.ns.as_str(),
            // The buffer was filled by `encode_lower`, which writes ASCII.
            me: std::str::from_utf8(&self.me_text).unwrap_or_default(),
            expire: self.expire.micros(),
            ..Args::default()
        }
    }

    fn row_is_locked(&self) -> ElectionError {
        ElectionError::LockTimeout {
            ns: self.ns().to_owned(),
            waited: Duration::ZERO,
        }
    }

    /// Runs `attempt` until it succeeds, fails for good, or the time budget is spent.
    ///
    /// In a transaction that the caller has open, each attempt is a savepoint: one that fails
    /// takes nothing of the caller's along.
    pub(crate) fn run<S: Store, T>(
        &self,
        store: &mut S,
        mut attempt: impl FnMut(&mut S) -> Result<T, ElectionError>,
    ) -> Result<T, ElectionError> {
        let mut attempts = self.budget::<S>().start(S::LONGEST_PAUSE);
        loop {
            let in_transaction = store.depth()? > 0;
            let outcome = if in_transaction {
                store.in_transaction(&mut attempt)
            } else {
                attempt(store)
            };
            let Err(error) = outcome else { return outcome };
            if let Err(error) = attempts.pause_or_give_up(error, in_transaction) {
                return Err(
                    told_by_the_tables(store, error, in_transaction).during(self.name, self.ns())
                );
            }
        }
    }
}

/// A server that speaks another language says in its own words that a table is missing.
fn told_by_the_tables<S: Store>(
    store: &mut S,
    error: ElectionError,
    in_transaction: bool,
) -> ElectionError {
    if in_transaction || error.class() != Some(Class::Unknown) {
        return error;
    }
    match migrate::check(store) {
        Err(missing @ ElectionError::Schema { .. }) => missing,
        _ => error,
    }
}

/// Who leads after an `elect`.
pub(crate) struct Elected {
    pub leader: Uuid,
    /// The caller leads, and was renewed by what waits for nobody.
    pub at_once: bool,
}

pub(crate) fn elect<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    expected: Expected,
) -> Result<Elected, ElectionError> {
    let mut is_new = false;
    let mut at_once = false;
    let leader = call.run(store, |store| {
        // 1. Look, without a wait for a lock. Most calls end here: the leader's with its lease
        //    renewed, unless another session holds a row of it; a follower's with nothing written.
        if store.reads_are_current()? {
            let glance = store.glance(&call.args(), expected)?;
            is_new = !glance.renewed && glance.registration_left.is_none();
            at_once = glance.renewed;
            if at_once {
                return Ok(call.me);
            }
            if let Some(leader) = someone_else_leads(&glance, call.me) {
                refresh_registration(store, call, &glance)?;
                return Ok(leader);
            }
        }
        // 2. There is something to take or to renew: lock the row, decide, write, commit.
        store.in_transaction(|store| decide_locked(store, call))
    })?;
    // Who has just been told that it leads has no time to lose.
    if is_new && leader != call.me {
        make_room(store, call);
    }
    Ok(Elected { leader, at_once })
}

/// Whoever registers anew removes what is left of some who have gone; not in the caller's
/// transaction, which would hold their rows.
fn make_room<S: Store>(store: &mut S, call: &Call<'_>) {
    let swept = match store.depth() {
        Ok(0) => sweep::sweep(store, call.ns(), sweep::A_FEW),
        _ => return,
    };
    if let Err(error) = swept {
        tracing::debug!(%error, "registrations that ended long ago stay for now");
    }
}

fn someone_else_leads(glance: &Glance, me: Uuid) -> Option<Uuid> {
    match decide(glance.standing?, me, Claim::Identity) {
        Decision::Follow(leader) => Some(leader),
        Decision::Take | Decision::Renew => None,
    }
}

/// A follower that calls often writes its registration once in a third of the lease duration.
fn refresh_registration<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    glance: &Glance,
) -> Result<(), ElectionError> {
    match glance.registration_left {
        Some(left) if call.expire.still_fresh(left) => Ok(()),
        _ => store.beat(&call.args()).map(drop),
    }
}

fn decide_locked<S: Store>(store: &mut S, call: &Call<'_>) -> Result<Uuid, ElectionError> {
    let args = call.args();
    // The registration first: to write it may take a wait, and the lease counts from its writing.
    store.beat_within(&args)?;
    let standing = lock(store, call)?;
    match decide(standing, call.me, Claim::Identity) {
        Decision::Follow(leader) => return Ok(leader),
        Decision::Take => drop(take(store, call, standing)?),
        Decision::Renew => {
            let term = standing.term().get();
            if !store.renew(&Args { term, ..args })? {
                return Err(call.row_is_locked());
            }
        }
    }
    Ok(call.me)
}

/// Locks the leader row; makes it exist first, since a row that is missing cannot be locked.
fn lock<S: Store>(store: &mut S, call: &Call<'_>) -> Result<Standing, ElectionError> {
    let args = call.args();
    let mut locked = store.lock(&args)?;
    if matches!(locked, Lock::Absent) {
        store.ensure_row(&args)?;
        locked = store.lock(&args)?;
    }
    match locked {
        Lock::Taken(standing) => Ok(standing),
        Lock::Busy | Lock::Absent => Err(call.row_is_locked()),
    }
}

/// Takes the lease for a guard if it is free, and gives its term; `last` is the term the same
/// guard held before, if any.
pub(crate) fn claim<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    last: Option<Term>,
) -> Result<Option<Term>, ElectionError> {
    store.in_transaction(|store| {
        store.beat_within(&call.args())?;
        let standing = lock(store, call)?;
        match decide(standing, call.me, Claim::Guard { last }) {
            Decision::Take => take(store, call, standing).map(Some),
            Decision::Renew | Decision::Follow(_) => Ok(None),
        }
    })
}

/// Ends a guard's campaign: releases its tenure, if that is still current, and its registration.
pub(crate) fn leave<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    term: Option<Term>,
) -> Result<(), ElectionError> {
    store.in_transaction(|store| {
        let args = call.args();
        if let Some(term) = term {
            if matches!(store.lock(&args)?, Lock::Busy) {
                return Err(call.row_is_locked());
            }
            store.release(&Args {
                term: term.get(),
                text: Ending::Resigned.as_stored(),
                ..args
            })?;
        }
        store.withdraw_within(&args)
    })
}

/// Refuses, inside the caller's transaction, unless the tenure is current; if it is, no other can
/// begin before that transaction ends.
pub(crate) fn fence<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    term: Term,
) -> Result<(), ElectionError> {
    let args = Args {
        term: term.get(),
        ..call.args()
    };
    if store.fence(&args)? {
        return Ok(());
    }
    Err(ElectionError::NotLeader {
        ns: call.ns().to_owned(),
        candidate_id: call.me,
        term,
    })
}

/// Acquires the locked lease under the next term.
///
/// The history is asked as well as the row: a row that was deleted or made anew by something else
/// has forgotten its term.
fn take<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    standing: Standing,
) -> Result<Term, ElectionError> {
    let args = call.args();
    let last = store.last_term(&args)?.max(standing.term());
    let next = last.next().ok_or_else(|| ElectionError::Corrupt {
        table: super::store::LEADER,
        ns: call.ns().to_owned(),
        detail: format!("term {last} is the last integer there is"),
    })?;
    let args = Args {
        term: next.get(),
        ..args
    };
    store.take(&args, last)?;
    Ok(next)
}

pub(crate) fn register<S: Store>(store: &mut S, call: &Call<'_>) -> Result<(), ElectionError> {
    if call.run(store, |store| store.beat(&call.args()))? {
        make_room(store, call);
    }
    Ok(())
}

pub(crate) fn unregister<S: Store>(store: &mut S, call: &Call<'_>) -> Result<(), ElectionError> {
    call.run(store, |store| {
        let args = call.args();
        let may_lead = !store.reads_are_current()? || leads(store.look(&args)?, call.me);
        if !may_lead {
            return store.withdraw(&args);
        }
        store.in_transaction(|store| {
            release(store, call)?;
            store.withdraw_within(&args)
        })
    })
}

/// Clears the leadership of the caller, and of nobody else: the lease is looked at again once the
/// row is locked.
fn release<S: Store>(store: &mut S, call: &Call<'_>) -> Result<(), ElectionError> {
    let args = call.args();
    match store.lock(&args)? {
        Lock::Busy => Err(call.row_is_locked()),
        Lock::Taken(standing) if leads(Some(standing), call.me) => {
            store.release(&Args {
                term: standing.term().get(),
                text: Ending::Resigned.as_stored(),
                ..args
            })?;
            Ok(())
        }
        Lock::Taken(_) | Lock::Absent => Ok(()),
    }
}

fn leads(standing: Option<Standing>, me: Uuid) -> bool {
    standing.and_then(Standing::leader) == Some(me)
}

pub(crate) fn is_leader<S: Store>(store: &mut S, call: &Call<'_>) -> Result<bool, ElectionError> {
    call.run(store, |store| Ok(leads(store.look(&call.args())?, call.me)))
}

pub(crate) fn leader<S: Store>(
    store: &mut S,
    call: &Call<'_>,
) -> Result<Option<Leader>, ElectionError> {
    call.run(store, |store| match store.look(&call.args())? {
        Some(Standing::Held {
            by,
            term,
            remaining,
        }) => Ok(Some(Leader {
            candidate_id: by,
            term,
            remaining,
        })),
        _ => Ok(None),
    })
}

pub(crate) fn list_candidates<S: Store>(
    store: &mut S,
    call: &Call<'_>,
) -> Result<Vec<Uuid>, ElectionError> {
    let mut candidates = call.run(store, |store| store.list(&call.args()))?;
    // The order of the bytes, by one comparison.
    candidates.sort_unstable_by_key(Uuid::as_u128);
    Ok(candidates)
}

pub(crate) fn candidates<S: Store>(
    store: &mut S,
    call: &Call<'_>,
) -> Result<Vec<ElectionCandidate>, ElectionError> {
    let rows = call.run(store, |store| Ok(store.candidate_rows(&call.args())?))?;
    rows.into_iter().map(model::candidate_from_row).collect()
}

pub(crate) fn leader_row<S: Store>(
    store: &mut S,
    call: &Call<'_>,
) -> Result<Option<ElectionLeader>, ElectionError> {
    let rows = call.run(store, |store| Ok(store.leader_rows(&call.args())?))?;
    rows.into_iter()
        .next()
        .map(model::leader_from_row)
        .transpose()
}

pub(crate) fn history<S: Store>(
    store: &mut S,
    call: &Call<'_>,
    limit: u32,
) -> Result<Vec<TenureRecord>, ElectionError> {
    let args = Args {
        expire: limit.into(),
        ..call.args()
    };
    let rows = call.run(store, |store| Ok(store.tenure_rows(&args)?))?;
    rows.into_iter().map(model::tenure_from_row).collect()
}

//! A statement as the server sees it, with named places for values.
//!
//! diesel prepares it once for each connection and keeps it: a call is one exchange with the
//! server, where `sql_query` would need two or three.

use std::marker::PhantomData;

use diesel::RunQueryDsl;
use diesel::backend::Backend;
use diesel::query_builder::{AstPass, Query, QueryFragment, QueryId};
use diesel::result::{Error, QueryResult};
use diesel::serialize::ToSql;
use diesel::sql_types::{BigInt, HasSqlType, Text};

/// The values a statement may name, each as `{name}`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Args<'a> {
    pub ns: &'a str,
    pub me: &'a str,
    pub expire: i64,
    pub term: i64,
    pub text: &'a str,
}

enum Value<'a> {
    Text(&'a str),
    Int(&'a i64),
}

impl Args<'_> {
    fn get(&self, name: &str) -> Option<Value<'_>> {
        match name {
            "ns" => Some(Value::Text(self.ns)),
            "me" => Some(Value::Text(self.me)),
            "text" => Some(Value::Text(self.text)),
            "expire" => Some(Value::Int(&self.expire)),
            "term" => Some(Value::Int(&self.term)),
            _ => None,
        }
    }
}

/// A statement that returns rows of the SQL type `ST`.
pub(super) struct Statement<'a, ST = ()> {
    template: &'a str,
    args: &'a Args<'a>,
    planned_anew: bool,
    row: PhantomData<ST>,
}

impl<'a, ST> Statement<'a, ST> {
    pub(super) fn new(template: &'a str, args: &'a Args<'a>) -> Self {
        Statement {
            template,
            args,
            planned_anew: false,
            row: PhantomData,
        }
    }

    /// The server shall plan it for these values alone and forget it.
    pub(super) fn planned_anew(self) -> Self {
        Statement {
            planned_anew: true,
            ..self
        }
    }
}

impl<DB, ST> QueryFragment<DB> for Statement<'_, ST>
where
    DB: Backend + HasSqlType<Text> + HasSqlType<BigInt>,
    str: ToSql<Text, DB>,
    i64: ToSql<BigInt, DB>,
{
    fn walk_ast<'b>(&'b self, mut out: AstPass<'_, 'b, DB>) -> QueryResult<()> {
        if self.planned_anew {
            out.unsafe_to_cache_prepared();
        }
        let mut rest = self.template;
        while let Some((before, after)) = rest.split_once('{') {
            out.push_sql(before);
            let (name, after) = after.split_once('}').ok_or_else(|| unknown(after))?;
            match self.args.get(name).ok_or_else(|| unknown(name))? {
                Value::Text(text) => out.push_bind_param::<Text, str>(text)?,
                Value::Int(int) => out.push_bind_param::<BigInt, i64>(int)?,
            }
            rest = after;
        }
        out.push_sql(rest);
        Ok(())
    }
}

fn unknown(place: &str) -> Error {
    Error::QueryBuilderError(format!("no value is named {place}").into())
}

// The text itself is the key under which diesel keeps the prepared statement.
impl<ST> QueryId for Statement<'_, ST> {
    type QueryId = ();
    const HAS_STATIC_QUERY_ID: bool = false;
}

impl<ST> Query for Statement<'_, ST> {
    type SqlType = ST;
}

impl<Conn, ST> RunQueryDsl<Conn> for Statement<'_, ST> {}

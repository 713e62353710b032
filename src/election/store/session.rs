//! The few things asked of a diesel connection, whatever the database.
//!
//! diesel wants the connection's type at hand to bind values and to read rows, so the one body is
//! written once and instantiated for each.

use diesel::connection::{Connection, TransactionManager};
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Nullable, Text};

use super::statement::{Args, Statement};

/// A leader row as the database returns it: leader, term, microseconds of lease left, whether it
/// was renewed, microseconds of the caller's registration left.
pub type RawSighting = (Option<String>, i64, Option<i64>, i64, Option<i64>);
type SightingType = (
    Nullable<Text>,
    BigInt,
    Nullable<BigInt>,
    BigInt,
    Nullable<BigInt>,
);

/// A row of any table as the database returns it: namespace, who, two instants, a word, a term.
pub type RawRow = (
    String,
    Option<String>,
    i64,
    Option<i64>,
    Option<String>,
    i64,
);
type RowType = (
    Text,
    Nullable<Text>,
    BigInt,
    Nullable<BigInt>,
    Nullable<Text>,
    BigInt,
);

/// Statements run and rows read, over one diesel connection.
pub trait Session: Connection {
    /// How many transactions and savepoints are open.
    fn depth(&mut self) -> QueryResult<u32> {
        let status = Self::TransactionManager::transaction_manager_status_mut(self);
        Ok(status.transaction_depth()?.map_or(0, u32::from))
    }

    fn sighting(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Option<RawSighting>>;
    fn raw_rows(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Vec<RawRow>>;
    fn texts(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Vec<String>>;
    /// As `texts`, by a plan made for these values alone.
    fn texts_planned_anew(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Vec<String>>;
    fn number(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<i64>;
    fn execute(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<usize>;
}

macro_rules! session {
    ($Connection:ty) => {
        impl Session for $Connection {
            fn sighting(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Option<RawSighting>> {
                let statement = Statement::<SightingType>::new(sql, args);
                statement.get_result(self).optional()
            }

            fn raw_rows(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Vec<RawRow>> {
                Statement::<RowType>::new(sql, args).load(self)
            }

            fn texts(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<Vec<String>> {
                Statement::<Text>::new(sql, args).load(self)
            }

            fn texts_planned_anew(
                &mut self,
                sql: &str,
                args: &Args<'_>,
            ) -> QueryResult<Vec<String>> {
                let statement = Statement::<Text>::new(sql, args);
                statement.planned_anew().load(self)
            }

            fn number(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<i64> {
                Statement::<BigInt>::new(sql, args).get_result(self)
            }

            fn execute(&mut self, sql: &str, args: &Args<'_>) -> QueryResult<usize> {
                RunQueryDsl::execute(Statement::<()>::new(sql, args), self)
            }
        }
    };
}

#[cfg(feature = "postgres")]
session!(diesel::pg::PgConnection);
#[cfg(feature = "mysql")]
session!(diesel::mysql::MysqlConnection);
#[cfg(feature = "sqlite")]
session!(diesel::sqlite::SqliteConnection);

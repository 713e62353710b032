//! One suite, the same tests on every database, through the public API.

#![cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
mod database;

mod documented;
mod identity;
mod locks;
mod pooler;
mod schema;
mod shortcut;
mod text;
mod time;
mod transactions;
mod waits;

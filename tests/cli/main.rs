//! The program `leasehold`, run as its users run it.

#![cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]

#[path = "../support/mod.rs"]
mod support;

#[macro_use]
#[path = "../conformance/database.rs"]
#[allow(dead_code)]
mod database;

mod answers;
mod arguments;
mod check;
mod leases;
mod outage;
mod pty;
mod recipes;
mod run;
mod running;
mod secrets;
mod signals;
mod terminal;

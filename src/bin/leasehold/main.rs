//! `leasehold`: run a command only while leader, and see who leads.
//!
//! Exit codes: 0 yes or done, 1 no, 2 usage, 3 database or file error, 4 leadership lost; `run` passes on the code of its
//! command.

#[cfg(not(unix))]
compile_error!(
    "the program `leasehold` (feature `cli`) needs a Unix system: processes, signals, file locks"
);

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
#[path = "program.rs"]
mod program;

#[cfg(any(feature = "postgres", feature = "mysql", feature = "sqlite"))]
fn main() -> std::process::ExitCode {
    program::main()
}

/// Features are added up, so a build without any database must be possible; it can only say what it lacks.
#[cfg(not(any(feature = "postgres", feature = "mysql", feature = "sqlite")))]
fn main() -> std::process::ExitCode {
    eprintln!("leasehold: This build is without a database.");
    eprintln!(
        "Install it with one of them: cargo install leasehold --features cli,postgres,mysql."
    );
    std::process::ExitCode::from(2)
}

//! The published Python package `gemstone_utils`, with which we share tables and files.

use std::env;
use std::path::PathBuf;
use std::process::Command;

use super::server::output_of;

/// The interpreter of the environment that tests/run.sh makes.
pub fn interpreter() -> PathBuf {
    let path = env::var_os("LEASEHOLD_TEST_PYTHON").map_or_else(
        || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/python/bin/python"),
        PathBuf::from,
    );
    assert!(
        path.is_file(),
        "{} is missing: run tests/run.sh once, it makes the Python environment",
        path.display()
    );
    path
}

/// A Python program, to be run with arguments (`sys.argv[1:]`) and environment of your choice.
pub fn command(program: &str) -> Command {
    let mut command = Command::new(interpreter());
    // Isolated: neither the user's site-packages nor the working directory may stand in for the package.
    command.args(["-I", "-c", program]);
    command
}

/// What the program printed. Panics with its traceback when it fails.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = output_of(command(program).args(arguments), "");
    output.trim_end().to_owned()
}

/// A URL of ours in SQLAlchemy's spelling.
pub fn sqlalchemy_url(url: &str) -> String {
    url.replacen("postgres://", "postgresql+psycopg://", 1)
}

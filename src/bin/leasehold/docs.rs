//! `leasehold completions` and `leasehold man`: made from the command line's own description.

use std::io::Write;

use clap::CommandFactory;

use crate::program::args::{Cli, CompletionsArgs, ManArgs};
use crate::program::failure::{ERROR, Failure, YES};

pub fn completions(args: CompletionsArgs) -> Result<u8, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "leasehold", &mut script);
    raw(&script)
}

pub fn man(args: ManArgs) -> Result<u8, Failure> {
    let Some(dir) = args.dir else {
        return raw(&page().map_err(|error| unwritten("the page", error))?);
    };
    std::fs::create_dir_all(&dir)
        .and_then(|()| clap_mangen::generate_to(Cli::command(), &dir))
        .map_err(|error| unwritten(&dir.display().to_string(), error))?;
    Ok(YES)
}

/// One page with everything: the program, then each of its commands with its options.
fn page() -> std::io::Result<Vec<u8>> {
    let mut command = Cli::command();
    command.build();
    let mut page = Vec::new();
    let man = clap_mangen::Man::new(command.clone());
    man.render(&mut page)?;
    for sub in command
        .get_subcommands()
        .filter(|sub| sub.get_name() != "help")
    {
        of_command(sub, &mut page)?;
        for inner in sub
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help")
        {
            of_command(inner, &mut page)?;
        }
    }
    Ok(page)
}

fn of_command(command: &clap::Command, page: &mut Vec<u8>) -> std::io::Result<()> {
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    writeln!(page, ".SH \"{}\"", name.to_uppercase())?;
    let man = clap_mangen::Man::new(command.clone());
    let mut parts = Vec::new();
    man.render_synopsis_section(&mut parts)?;
    man.render_description_section(&mut parts)?;
    if command.get_arguments().next().is_some() {
        man.render_options_section(&mut parts)?;
    }
    // Its sections become parts of this one.
    let parts = String::from_utf8_lossy(&parts).replace(".SH ", ".SS ");
    page.write_all(parts.as_bytes())
}

/// Text for a program: no colour is in it, and none is taken out.
fn raw(bytes: &[u8]) -> Result<u8, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(unwritten("stdout", error))
        }
        _ => Ok(YES),
    }
}

fn unwritten(what: &str, error: std::io::Error) -> Failure {
    Failure::new(
        ERROR,
        format!("{what} cannot be written: {error}"),
        "give another place",
    )
}

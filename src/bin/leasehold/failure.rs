//! What goes wrong, told in two sentences: what happened, and what to do.

use std::ffi::OsString;

use leasehold::election::ElectionError;
use leasehold::operation::OperationLeaseError;

pub const YES: u8 = 0;
pub const NO: u8 = 1;
pub const USAGE: u8 = 2;
pub const ERROR: u8 = 3;
pub const LOST: u8 = 4;

/// Why the program ends without having done what it was asked for.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    what: String,
    advice: String,
}

impl Failure {
    pub fn new(code: u8, what: impl Into<String>, advice: impl Into<String>) -> Failure {
        Failure {
            code,
            what: what.into(),
            advice: advice.into(),
        }
    }

    pub fn report(&self) {
        let style = crate::program::output::BAD;
        crate::program::output::say(&format!("{style}leasehold:{style:#} {self}"));
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&sentence(&self.what))?;
        if !self.advice.is_empty() {
            write!(f, "\n{}", sentence(&self.advice))?;
        }
        Ok(())
    }
}

impl From<ElectionError> for Failure {
    fn from(error: ElectionError) -> Failure {
        let code = match &error {
            ElectionError::InvalidNamespace { .. }
            | ElectionError::InvalidSetting { .. }
            | ElectionError::InvalidUrl { .. } => USAGE,
            _ => ERROR,
        };
        let text = error.to_string();
        let (what, advice) = halves(&text);
        // The library speaks to programmers; where it names a function, the user has an option or a command.
        let advice = match &error {
            ElectionError::Schema { .. } => "run `leasehold migrate` against this database",
            ElectionError::Migration { .. } => {
                "correct the cause, or let a user who may create tables apply what `leasehold migrate --print` prints"
            }
            ElectionError::NoConnection { .. } => "try again, and check that the database runs",
            _ if advice.contains("prepared_statements(false)") => {
                "there is a transaction pooler in between: give --pooler"
            }
            _ => by_its_words(what).unwrap_or(advice),
        };
        Failure::new(code, what, advice)
    }
}

impl From<OperationLeaseError> for Failure {
    fn from(error: OperationLeaseError) -> Failure {
        let (code, advice) = match &error {
            OperationLeaseError::Identifier(_)
            | OperationLeaseError::Instant { .. }
            | OperationLeaseError::Window { .. }
            | OperationLeaseError::Setting { .. } => (USAGE, "give another value"),
            OperationLeaseError::Transition(_) => (
                USAGE,
                "see `leasehold lease --help` for what each command may change",
            ),
            OperationLeaseError::LockTimeout { .. } => (
                ERROR,
                "try again, and look for a process that holds the lock",
            ),
            OperationLeaseError::NetworkFilesystem { .. } => {
                (ERROR, "give a directory on a local disk as --root")
            }
            error if error.is_retryable() => (ERROR, "correct the cause and try again"),
            _ => (ERROR, "look at the file; it was left as it is"),
        };
        let mut what = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            what = format!("{what}: {source}");
        }
        // The library names an option of its builder, which the advice here replaces.
        let what = what.split(": use a local disk").next().unwrap_or(&what);
        Failure::new(code, what, advice)
    }
}

/// What to do about what only the words of the driver tell.
fn by_its_words(what: &str) -> Option<&'static str> {
    if what.contains("file is not a database") {
        return Some("give the path of an SQLite database, or of a file that is not there yet");
    }
    if what.contains("readonly database") {
        return Some("let this user write the file and the directory that it is in");
    }
    let refused = what.contains("permission denied for") || what.contains("command denied to user");
    refused.then_some("grant it to this user; `leasehold check` lists what an election needs")
}

/// A message of the form "what happened; what to do", cut at the semicolon. Quoted text is not looked into.
fn halves(text: &str) -> (&str, &str) {
    let mut quoted = false;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return (&text[..at], text[at + 1..].trim_start()),
            _ => {}
        }
    }
    (text, "")
}

fn sentence(text: &str) -> String {
    // Some drivers answer in several lines.
    let lines: Vec<&str> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    // What was typed or stored may hold what a terminal would obey.
    let text = lines.join(", ").replace(char::is_control, "\u{fffd}");
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    let end = if text.ends_with(['.', '!', '?']) {
        ""
    } else {
        "."
    };
    format!("{}{}{end}", first.unwrap_or_default(), letters.as_str())
}

/// The passwords that stand in a database URL: between user and host, and as parameters.
pub fn passwords(url: &str) -> Vec<&str> {
    let Some((_, rest)) = url.split_once("://") else {
        return Vec::new();
    };
    let (before, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let in_authority = rest
        .rsplit_once('@')
        .and_then(|(user, _)| user.split_once(':'))
        .or_else(|| {
            before
                .split_once('@')
                .and_then(|(user, _)| user.split_once(':'))
        })
        .map(|(_, password)| password);
    let in_parameters = parameters
        .split(['&', '#'])
        .filter_map(|parameter| parameter.split_once('='))
        .filter(|(name, _)| name.to_ascii_lowercase().contains("pass"))
        .map(|(_, value)| value);
    let all = in_authority.into_iter().chain(in_parameters);
    all.filter(|password| !password.is_empty()).collect()
}

/// A text that quotes the command line, with the passwords of all URLs in that removed.
pub fn censor_arguments(text: &str, arguments: &[OsString]) -> String {
    let mut text = text.to_owned();
    for argument in arguments {
        for password in passwords(&argument.to_string_lossy()) {
            text = text.replace(password, "***");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_cut_at_the_first_semicolon_outside_quotes() {
        assert_eq!(
            halves("a \"x; \\\"y\" b; do c; then d"),
            ("a \"x; \\\"y\" b", "do c; then d")
        );
        assert_eq!(halves("nothing to do"), ("nothing to do", ""));
    }

    #[test]
    fn passwords_are_found_wherever_they_stand() {
        assert_eq!(
            passwords("postgres://u:a@h/d?sslpassword=b&x=c"),
            ["a", "b"]
        );
        assert_eq!(passwords("mysql://u:p@ss@h/d"), ["p@ss"]);
        assert!(passwords("sqlite:/a:b@c").is_empty());
        assert!(passwords("postgres://u@h:5432/d").is_empty());
    }
}

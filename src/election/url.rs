//! Which database a URL means, and what of it may be shown.

use diesel::ConnectionError;

use super::ElectionError;

/// A database URL that has been understood.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum DatabaseUrl {
    Postgres(String),
    Mysql(String),
    /// The path of the file.
    Sqlite(String),
}

impl DatabaseUrl {
    pub(crate) fn parse(url: &str) -> Result<DatabaseUrl, ElectionError> {
        if url.contains('\0') {
            return Err(refused("it contains a NUL"));
        }
        let scheme = url.split_once(':').map_or("", |(scheme, _)| scheme);
        match scheme {
            "postgres" | "postgresql" => Ok(DatabaseUrl::Postgres(server(url)?)),
            "mysql" => Ok(DatabaseUrl::Mysql(server(url)?)),
            "sqlite" => Ok(DatabaseUrl::Sqlite(file(&url["sqlite:".len()..])?)),
            "" => Err(refused("it names no database kind")),
            // What stands before a colon in a mistyped URL may be anything, even a secret.
            _ => Err(refused("its scheme is not known")),
        }
    }

    /// The URL as it may be shown: without password and parameters.
    pub(crate) fn shown(&self) -> String {
        match self {
            DatabaseUrl::Sqlite(path) => format!("sqlite:{path}"),
            DatabaseUrl::Postgres(url) | DatabaseUrl::Mysql(url) => {
                let (scheme, rest) = url.split_once("://").unwrap_or(("", ""));
                let rest = rest.split(['?', '#']).next().unwrap_or_default();
                match rest.split_once('@') {
                    None => format!("{scheme}://{rest}"),
                    Some((user, host)) => {
                        let user = user.split(':').next().unwrap_or_default();
                        format!("{scheme}://{user}@{host}")
                    }
                }
            }
        }
    }

    /// The error of a driver that could not connect, with every secret of the URL removed.
    pub(crate) fn connect_error(&self, error: ConnectionError) -> ElectionError {
        let source = match error {
            // Its `Debug` shows the bytes of the URL.
            ConnectionError::InvalidCString(_) => {
                ConnectionError::BadConnection("the URL contains a NUL".into())
            }
            ConnectionError::InvalidConnectionUrl(text) => {
                ConnectionError::InvalidConnectionUrl(self.censored(&text))
            }
            other => ConnectionError::BadConnection(self.censored(other.to_string().trim_end())),
        };
        ElectionError::Connect {
            database: self.shown(),
            source,
        }
    }

    fn censored(&self, text: &str) -> String {
        let secrets = self.secrets();
        // Replacing a letter or two would show where they stand.
        if secrets
            .iter()
            .any(|secret| secret.len() < 4 && text.contains(secret))
        {
            return "what the driver said repeats the password and is withheld".to_owned();
        }
        secrets
            .iter()
            .fold(text.to_owned(), |text, secret| text.replace(secret, "***"))
    }

    /// Passwords of the URL, as written and as meant, longest first.
    fn secrets(&self) -> Vec<String> {
        let (DatabaseUrl::Postgres(url) | DatabaseUrl::Mysql(url)) = self else {
            return Vec::new();
        };
        let (_, rest) = url.split_once("://").unwrap_or(("", url));
        let (authority, parameters) = rest.split_once('?').unwrap_or((rest, ""));
        let in_authority = authority
            .split_once('@')
            .and_then(|(user, _)| user.split_once(':'))
            .map(|(_, password)| password);
        let in_parameters = parameters
            .split('&')
            .filter_map(|parameter| parameter.split_once('='))
            .filter(|(name, _)| name.to_ascii_lowercase().contains("password"))
            .map(|(_, value)| value);
        let mut secrets: Vec<String> = in_authority
            .into_iter()
            .chain(in_parameters)
            .flat_map(|secret| [secret.to_owned(), percent_decoded(secret)])
            .filter(|secret| !secret.is_empty())
            .collect();
        secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        secrets
    }
}

impl std::fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.shown())
    }
}

/// Host and port of a server URL; `None` where the client library uses a socket of the machine.
#[cfg(feature = "mysql")]
pub(crate) fn tcp_address(url: &str) -> Option<String> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority
        .rsplit_once('@')
        .map_or(authority, |(_, host)| host);
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port),
        _ => (host, "3306"),
    };
    let local = name.is_empty() || name == "localhost" || rest.contains("unix_socket=");
    (!local).then(|| format!("{name}:{port}"))
}

/// Whether a failed connection will fail the same way until someone changes something.
pub(crate) fn is_final(error: &ConnectionError) -> bool {
    const FINAL: &[&str] = &[
        "authentication failed",
        "Access denied",
        "does not exist",
        "Unknown database",
        "no pg_hba.conf entry",
        "unable to open database file",
        "file is not a database",
    ];
    match error {
        ConnectionError::InvalidConnectionUrl(_) | ConnectionError::InvalidCString(_) => true,
        other => {
            let text = other.to_string();
            FINAL.iter().any(|part| text.contains(part))
        }
    }
}

/// Checks the URL of a server: drivers differ in where they think a password ends when it holds
/// one of the separators, and may then print a part of it as a host.
fn server(url: &str) -> Result<String, ElectionError> {
    let (_, rest) = url
        .split_once("://")
        .ok_or_else(|| refused("`//` is missing after the scheme"))?;
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let path = tail.split('?').next().unwrap_or_default();
    let port_is_odd = !authority.contains('@')
        && authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| !port.ends_with(']') && port.parse::<u16>().is_err());
    let ambiguous = authority.matches('@').count() > 1
        || path.contains('@')
        || (port_is_odd && tail.contains('@'));
    if ambiguous {
        return Err(refused(
            "user or password contains one of / ? # @ : as it is; write it percent-encoded",
        ));
    }
    if path.trim_start_matches('/').is_empty() {
        return Err(refused("it names no database after the host"));
    }
    Ok(url.to_owned())
}

fn file(path: &str) -> Result<String, ElectionError> {
    let path = path.strip_prefix("//").unwrap_or(path);
    if path.is_empty() {
        return Err(refused("it names no file"));
    }
    if path == ":memory:" || path.contains("mode=memory") {
        return Err(refused(
            "an in-memory database is another one for each connection; name a file",
        ));
    }
    if path.contains('?') {
        return Err(refused("parameters are not supported for sqlite"));
    }
    // SQLite takes some beginnings for more than a name.
    let special = ["file:", "sqlite:", ":"]
        .iter()
        .any(|start| path.starts_with(start));
    Ok(if special {
        format!("./{path}")
    } else {
        path.to_owned()
    })
}

fn refused(reason: &str) -> ElectionError {
    ElectionError::InvalidUrl {
        reason: reason.to_owned(),
    }
}

fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_names_no_database_and_shows_nothing_of_the_url() {
        for url in [
            "",
            "postgress://u:hunter2@h/d",
            "hunter2",
            "/tmp/x.db",
            "hunter2:x",
            "postgres:h",
        ] {
            let error = DatabaseUrl::parse(url).unwrap_err();
            let text = format!("{error} {error:?}");
            assert!(!text.contains("hunter2"), "{text}");
            assert!(text.contains("sqlite:PATH"), "{text}");
        }
    }

    #[test]
    fn a_password_that_two_readers_would_cut_differently_is_refused() {
        for url in [
            "postgres://u:a/b@h/d",
            "postgres://u:a@b@h/d",
            "postgres://u:a?b@h/d",
            "mysql://u:a#b@h/d",
        ] {
            assert!(DatabaseUrl::parse(url).is_err(), "{url}");
        }
        for url in [
            "postgres://u:a%2Fb@h/d",
            "postgres://h:5432/d?user=u&password=a@b",
            "postgres://u@[::1]:5432/d?host=/run/x",
            "postgres:///d?host=/run/x",
            "mysql://u:p@127.0.0.1:3306/d",
        ] {
            assert!(DatabaseUrl::parse(url).is_ok(), "{url}");
        }
    }

    #[test]
    fn what_is_shown_has_no_password() {
        let url = DatabaseUrl::parse("postgres://u:s%65cret@h:1/d?sslpassword=other").unwrap();
        assert_eq!(url.shown(), "postgres://u@h:1/d");
        let error = ConnectionError::BadConnection("s%65cret secret other at u".into());
        let error = url.connect_error(error);
        for text in [error.to_string(), format!("{error:?}"), format!("{url:?}")] {
            assert!(!text.contains("cret") && !text.contains("other"), "{text}");
        }
    }

    #[test]
    fn sqlite_paths() {
        let path = |url: &str| match DatabaseUrl::parse(url).unwrap() {
            DatabaseUrl::Sqlite(path) => path,
            other => panic!("{other:?}"),
        };
        assert_eq!(path("sqlite:a.db"), "a.db");
        assert_eq!(path("sqlite:/a/b.db"), "/a/b.db");
        assert_eq!(path("sqlite:///a/b.db"), "/a/b.db");
        assert_eq!(path("sqlite:file:x"), "./file:x");
        for url in [
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:a?mode=ro",
        ] {
            assert!(DatabaseUrl::parse(url).is_err(), "{url}");
        }
    }
}

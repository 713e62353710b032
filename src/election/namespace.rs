use super::ElectionError;

/// The namespace that `None` stands for.
const DEFAULT: &str = "default";

/// The longest namespace, in characters: the width of the column on every database.
const MAX_CHARS: usize = 255;

/// A namespace that every database stores and compares byte for byte.
///
/// The rules close the gaps between databases: PostgreSQL has no NUL, and MySQL compares text as
/// if it were padded with spaces, so what one would fold or refuse is refused for all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Namespace<'a>(&'a str);

impl<'a> Namespace<'a> {
    pub(crate) fn new(ns: Option<&'a str>) -> Result<Self, ElectionError> {
        let ns = ns.unwrap_or(DEFAULT);
        match refusal(ns) {
            None => Ok(Namespace(ns)),
            Some(reason) => Err(ElectionError::InvalidNamespace {
                ns: ns.chars().take(MAX_CHARS).collect(),
                reason,
            }),
        }
    }

    pub(crate) fn as_str(self) -> &'a str {
        self.0
    }
}

fn refusal(ns: &str) -> Option<&'static str> {
    if ns.is_empty() {
        Some("it is empty")
    } else if ns.chars().nth(MAX_CHARS).is_some() {
        Some("it is longer than 255 characters")
    } else if ns.chars().any(char::is_control) {
        Some("it contains a control character")
    } else if ns.trim() != ns {
        Some("it begins or ends with whitespace")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_default() {
        assert_eq!(Namespace::new(None).unwrap().as_str(), "default");
    }

    #[test]
    fn names_that_databases_would_fold_or_refuse_are_refused() {
        let long = "x".repeat(256);
        for ns in [
            "", "\0", "a\0b", "\n", "a\u{85}b", "a ", " a", "a\u{a0}", &long,
        ] {
            assert!(Namespace::new(Some(ns)).is_err(), "{ns:?}");
        }
    }

    #[test]
    fn names_that_only_look_alike_are_accepted() {
        let wide = "𝒳".repeat(255);
        for ns in ["Jobs", "á", "a\u{301}", "ß", "a\u{200b}", "a b", &wide] {
            assert_eq!(Namespace::new(Some(ns)).unwrap().as_str(), ns);
        }
    }
}

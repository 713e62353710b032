//! What is wrong with what was found on disk, or would be wrong with what was to be put there.

use std::fmt;

use super::id::InvalidIdentifier;

/// Why a time cannot be part of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidInstant {
    /// The year is not 1 to 9999.
    #[error("the year is outside 1 to 9999")]
    OutOfRange,
    /// A leap second, which has no place on the time line of a record.
    #[error("it is a leap second")]
    LeapSecond,
    /// The text is no RFC 3339 time.
    #[error("it is no RFC 3339 time")]
    NotRfc3339,
    /// The text has another offset than UTC.
    #[error("it is not in UTC")]
    NotUtc,
    /// The text has more digits than microseconds.
    #[error("it is finer than a microsecond")]
    TooPrecise,
}

/// What stands where a plain private file or directory was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathFault {
    /// A symbolic link, dangling or not.
    #[error("it is a symbolic link")]
    Symlink,
    /// A file that has other names as well.
    #[error("it has {links} names (hard links)")]
    HardLinked {
        /// How many names the file has.
        links: u64,
    },
    /// Something else than a regular file.
    #[error("it is a {kind}, not a regular file")]
    NotRegularFile {
        /// What it is.
        kind: FileKind,
    },
    /// Something else than a directory.
    #[error("it is a {kind}, not a directory")]
    NotDirectory {
        /// What it is.
        kind: FileKind,
    },
    /// Another user's file or directory.
    #[error("it belongs to user {owner}, and this process runs as user {expected}")]
    ForeignOwner {
        /// Whose it is.
        owner: u32,
        /// The effective user of this process.
        expected: u32,
    },
    /// A record that other users may write.
    #[error(
        "others may write to it (mode {mode:03o}): chmod it to 600 if its content can be trusted"
    )]
    Writable {
        /// Its permission bits.
        mode: u32,
    },
}

/// A kind of file system object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names say it")]
pub enum FileKind {
    RegularFile,
    Directory,
    Fifo,
    Socket,
    CharacterDevice,
    BlockDevice,
    Other,
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RegularFile => "regular file",
            Self::Directory => "directory",
            Self::Fifo => "FIFO",
            Self::Socket => "socket",
            Self::CharacterDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Other => "special file",
        })
    }
}

/// What is wrong with the content of a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordFault {
    /// No bytes at all.
    #[error("it is empty")]
    Empty,
    /// More bytes than any record has.
    #[error("it is larger than {limit} bytes")]
    Oversized {
        /// The largest accepted size in bytes.
        limit: u64,
    },
    /// The bytes are no UTF-8 text.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// The text ends in the middle.
    #[error("it is cut short")]
    Truncated,
    /// The text is no JSON.
    #[error("it is no JSON at line {line}, column {column}")]
    Malformed {
        /// Counted from 1.
        line: usize,
        /// Counted from 1.
        column: usize,
    },
    /// Something follows the record.
    #[error("something follows the record")]
    TrailingBytes,
    /// A schema version this library does not know.
    #[error("its schema version is {found}, and only 2 is known")]
    UnknownVersion {
        /// The version as written.
        found: String,
    },
    /// A field is missing.
    #[error("field {field} is missing")]
    MissingField {
        /// Its name.
        field: &'static str,
    },
    /// A field that no record has.
    #[error("field {field:?} is unknown")]
    UnknownField {
        /// Its name, shortened.
        field: String,
    },
    /// A field is there twice.
    #[error("field {field} is there twice")]
    DuplicateField {
        /// Its name.
        field: &'static str,
    },
    /// A field is of another JSON type.
    #[error("field {field} is not {expected}")]
    WrongType {
        /// Its name.
        field: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A field holds no identifier.
    #[error("field {field}: {reason}")]
    InvalidIdentifier {
        /// Its name.
        field: &'static str,
        /// What is wrong with it.
        reason: InvalidIdentifier,
    },
    /// A field holds no time.
    #[error("field {field}: {reason}")]
    InvalidInstant {
        /// Its name.
        field: &'static str,
        /// What is wrong with it.
        reason: InvalidInstant,
    },
    /// The record is of another scope than its file name says.
    #[error("its conflict scope is not the one in its file name")]
    ForeignScope,
    /// The lease inside names another scope than the record.
    #[error("its lease belongs to another conflict scope")]
    LeaseScopeMismatch,
    /// The lease inside names another operation than the record.
    #[error("its lease belongs to another operation")]
    LeaseOperationMismatch,
    /// The lease inside does not expire after its acquisition.
    #[error("its lease does not expire after its acquisition")]
    LeaseWindow,
    /// The lease inside was acquired after the record was made.
    #[error("its lease was acquired after the record was made")]
    AcquiredAfterRecorded,
}

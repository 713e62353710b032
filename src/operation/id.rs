//! Identifiers: 32 bytes, written as exactly 64 lowercase hexadecimal characters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Why a text is no identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a {kind} is exactly 64 lowercase hexadecimal characters, and this is {fault}")]
pub struct InvalidIdentifier {
    kind: &'static str,
    fault: IdentifierFault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IdentifierFault {
    Length(usize),
    Character(usize),
}

impl fmt::Display for IdentifierFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(bytes) => write!(f, "{bytes} bytes long"),
            Self::Character(at) => write!(f, "something else at byte {at}"),
        }
    }
}

// The rejected text is not kept: it may be a token with one wrong character.
fn decode(kind: &'static str, text: &str) -> Result<[u8; 32], InvalidIdentifier> {
    let fault = |fault| InvalidIdentifier { kind, fault };
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return Err(fault(IdentifierFault::Length(digits.len())));
    }
    let mut bytes = [0; 32];
    for (at, digit) in digits.iter().enumerate() {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return Err(fault(IdentifierFault::Character(at))),
        };
        bytes[at / 2] = bytes[at / 2] << 4 | value;
    }
    Ok(bytes)
}

/// The 64 characters of 32 bytes, without an allocation.
pub(super) fn encode(bytes: &[u8; 32]) -> [u8; 64] {
    let mut digits = [0; 64];
    for (byte, pair) in bytes.iter().zip(digits.chunks_exact_mut(2)) {
        pair[0] = b"0123456789abcdef"[usize::from(byte >> 4)];
        pair[1] = b"0123456789abcdef"[usize::from(byte & 15)];
    }
    digits
}

fn write_hex(bytes: &[u8; 32], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let digits = encode(bytes);
    f.pad(std::str::from_utf8(&digits).map_err(|_| fmt::Error)?)
}

fn random_bytes() -> [u8; 32] {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name([u8; 32]);

        impl $name {
            /// The 32 bytes that the hexadecimal text stands for.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        /// Takes any 32 bytes, such as a SHA-256 digest of what the identifier stands for.
        impl From<[u8; 32]> for $name {
            fn from(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }
        }

        impl FromStr for $name {
            type Err = InvalidIdentifier;

            fn from_str(text: &str) -> Result<Self, InvalidIdentifier> {
                decode($kind, text).map(Self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write_hex(&self.0, f)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
                text.parse().map_err(de::Error::custom)
            }
        }
    };
}

macro_rules! plain_debug {
    ($name:ident) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

identifier! {
    /// Names one supervised operation.
    ///
    /// ```
    /// use leasehold::operation::OperationId;
    ///
    /// let id: OperationId = "ab".repeat(32).parse()?;
    /// assert_eq!(id.to_string(), "ab".repeat(32));
    /// assert!("AB".repeat(32).parse::<OperationId>().is_err());
    /// # Ok::<(), leasehold::operation::InvalidIdentifier>(())
    /// ```
    OperationId, "operation id"
}
identifier! {
    /// Names the scope in which operations exclude each other: one lease, and one record file, per scope.
    ///
    /// Whatever must not run twice at once shares a scope. A digest of the kind of work and its subject serves well.
    OperationConflictScopeReference, "conflict scope reference"
}
identifier! {
    /// Names whoever owns a lease.
    ///
    /// A takeover demands an owner that differs from the one taken over, so a process that may have to take over
    /// from its own earlier run uses a new [`random`](Self::random) owner per run.
    OwnerId, "owner id"
}
identifier! {
    /// The secret-like capability of one tenure: who knows it can renew or release the lease.
    ///
    /// `Display` writes it in full; `Debug` does not, so that it stays out of logs.
    OperationLeaseToken, "lease token"
}

plain_debug!(OperationId);
plain_debug!(OperationConflictScopeReference);
plain_debug!(OwnerId);

impl fmt::Debug for OperationLeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OperationLeaseToken(..)")
    }
}

impl OperationId {
    /// A new identifier from the operating system's random source.
    ///
    /// # Panics
    ///
    /// When the operating system gives no random bytes.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl OwnerId {
    /// A new owner from the operating system's random source.
    ///
    /// # Panics
    ///
    /// When the operating system gives no random bytes.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

impl OperationLeaseToken {
    /// A new token from the operating system's random source: 256 bits that nobody can guess.
    ///
    /// # Panics
    ///
    /// When the operating system gives no random bytes.
    pub fn random() -> Self {
        Self(random_bytes())
    }
}

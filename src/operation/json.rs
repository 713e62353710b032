//! JSON that keeps what a map would lose: every field in order, duplicates included.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::fault::RecordFault;
use super::id::InvalidIdentifier;
use super::instant;

/// A JSON value, as far as a record can contain one. Arrays and fractions are kept only as being there.
pub(super) enum Node<'a> {
    Null,
    Integer(String),
    Text(Cow<'a, str>),
    Object(Vec<(Cow<'a, str>, Node<'a>)>),
    Other,
}

impl<'a> Node<'a> {
    /// Reads exactly one value; white space may surround it, nothing else.
    pub(super) fn read(bytes: &'a [u8]) -> Result<Self, RecordFault> {
        if bytes.is_empty() {
            return Err(RecordFault::Empty);
        }
        let text = std::str::from_utf8(bytes).map_err(|_| RecordFault::NotUtf8)?;
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let node = Self::deserialize(&mut deserializer).map_err(|error| {
            if error.is_eof() {
                RecordFault::Truncated
            } else {
                RecordFault::Malformed {
                    line: error.line(),
                    column: error.column(),
                }
            }
        })?;
        deserializer.end().map_err(|_| RecordFault::TrailingBytes)?;
        Ok(node)
    }

    pub(super) fn into_fields(self, field: &'static str) -> Result<Fields<'a>, RecordFault> {
        match self {
            Self::Object(fields) => Ok(Fields(fields)),
            _ => Err(wrong_type(field, "an object")),
        }
    }

    pub(super) fn into_integer(self, field: &'static str) -> Result<String, RecordFault> {
        match self {
            Self::Integer(digits) => Ok(digits),
            _ => Err(wrong_type(field, "an integer")),
        }
    }

    fn into_text(self, field: &'static str) -> Result<Cow<'a, str>, RecordFault> {
        match self {
            Self::Text(text) => Ok(text),
            _ => Err(wrong_type(field, "a string")),
        }
    }
}

fn wrong_type(field: &'static str, expected: &'static str) -> RecordFault {
    RecordFault::WrongType { field, expected }
}

/// The fields of an object, taken out one by one until none may be left.
pub(super) struct Fields<'a>(Vec<(Cow<'a, str>, Node<'a>)>);

impl<'a> Fields<'a> {
    /// Takes out the one field of this name.
    pub(super) fn take(&mut self, field: &'static str) -> Result<Node<'a>, RecordFault> {
        let at = self.0.iter().position(|(name, _)| name == field);
        let (_, node) = self
            .0
            .remove(at.ok_or(RecordFault::MissingField { field })?);
        if self.0.iter().any(|(name, _)| name == field) {
            return Err(RecordFault::DuplicateField { field });
        }
        Ok(node)
    }

    pub(super) fn identifier<T>(&mut self, field: &'static str) -> Result<T, RecordFault>
    where
        T: FromStr<Err = InvalidIdentifier>,
    {
        let text = self.take(field)?.into_text(field)?;
        text.parse()
            .map_err(|reason| RecordFault::InvalidIdentifier { field, reason })
    }

    pub(super) fn instant(&mut self, field: &'static str) -> Result<DateTime<Utc>, RecordFault> {
        let text = self.take(field)?.into_text(field)?;
        instant::parse(&text).map_err(|reason| RecordFault::InvalidInstant { field, reason })
    }

    /// Refuses whatever was not taken.
    pub(super) fn finish(self) -> Result<(), RecordFault> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((name, _)) => Err(RecordFault::UnknownField {
                field: name.chars().take(40).collect(),
            }),
        }
    }
}

impl<'de> Deserialize<'de> for Node<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node<'de>, E> {
        Ok(Node::Other)
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node<'de>, E> {
        Ok(Node::Integer(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node<'de>, E> {
        Ok(Node::Integer(value.to_string()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node<'de>, E> {
        Ok(Node::Other)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node<'de>, A::Error> {
        while items.next_element::<Node>()?.is_some() {}
        Ok(Node::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node<'de>, A::Error> {
        let mut fields = Vec::new();
        // A name is read as a value, too: that borrows it where it can.
        while let Some(entry) = entries.next_entry::<Node<'de>, Node<'de>>()? {
            if let (Node::Text(name), value) = entry {
                fields.push((name, value));
            }
        }
        Ok(Node::Object(fields))
    }
}

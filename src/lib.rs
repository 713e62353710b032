//! Exactly one holder at a time.

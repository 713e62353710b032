use std::time::Duration;
pub fn print(_: Duration) {}

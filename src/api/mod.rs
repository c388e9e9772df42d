//! What the broker answers to each API.

pub mod fetch_session;

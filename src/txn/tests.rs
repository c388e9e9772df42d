//! Decisions one by one, in the words of the protocol.

mod ctx;
mod ends;
mod inits;
mod partitions;
mod sim;

//! Tests of groups, one file a family; [`ctx`] is the shell that they use.

mod bad_input;
mod consumer;
mod ctx;
mod holding;
mod joining;
mod leaving;
mod offsets;
mod pending;
mod sim;
mod statics;
mod story;
mod syncing;

//! Hostile clients against the running binary: every frame of `fixtures/hostile/`, and clients that don't read, don't write on or come
//! too many at once. Whatever they do, another client is served, the broker's memory is bounded, and its log says who it was.

mod batches;
mod fixtures;
mod frames;
mod groups;
mod limits;
mod refusals;
mod requests;
mod victim;
mod wire;

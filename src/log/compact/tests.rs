//! placeholder for tests of compaction

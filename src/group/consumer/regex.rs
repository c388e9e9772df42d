//! Subscriptions by regular expression: which topics an expression stands for is found out here and kept as a record.

use super::draft::{ConsumerDraft, Refusal};
use crate::{
    group::{ConsumerRecord, ResolvedRegex},
    types::ErrorCode,
};
use regex::{Regex, RegexBuilder};
use std::{collections::BTreeSet, sync::Arc};

/// The longest expression, in bytes; Kafka knows no limit but the frame's.
const PATTERN_BYTES_MAX: usize = 10_000;
/// What a compiled expression may take.
const COMPILED_BYTES_MAX: usize = 1 << 20;
/// Expressions that one decision resolves; the next ones follow at once, after others had their turn.
const RESOLVED_AT_ONCE_MAX: usize = 20;
/// After topics have changed, expressions are resolved again no more often than this.
const RESOLVE_INTERVAL_MS: i64 = 1_000;

/// An expression that fits whole names only, as RE2J's `matches` does.
fn compile(pattern: &str) -> Result<Regex, String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("longer than {PATTERN_BYTES_MAX} bytes"));
    }
    let build = |pattern: &str| {
        let mut builder = RegexBuilder::new(pattern);
        builder.size_limit(COMPILED_BYTES_MAX).dfa_size_limit(COMPILED_BYTES_MAX).nest_limit(100).build()
    };
    let in_short = |error: regex::Error| error.to_string().lines().last().unwrap_or_default().to_owned();
    // By itself first: a bracket that closes what it never opened must not close ours.
    build(pattern).map_err(in_short)?;
    build(&format!(r"\A(?:{pattern})\z")).map_err(in_short)
}

/// Whether a member may subscribe by it.
pub(super) fn check(pattern: &str) -> Result<(), Refusal> {
    compile(pattern).map(drop).map_err(|error| {
        let told = format!("SubscribedTopicRegex `{pattern}` is not a valid regular expression: {error}.");
        (ErrorCode::InvalidRegularExpression, told)
    })
}

impl ConsumerDraft<'_> {
    /// Expressions that nobody subscribes by are forgotten, and those that were never resolved are resolved.
    pub(super) fn settle_regexes(&mut self) {
        let unused: Vec<Arc<str>> = self.group.regexes.keys().filter(|regex| !self.group.by_regex.contains_key(*regex)).cloned().collect();
        for regex in unused {
            self.put(ConsumerRecord::Regex(regex, None));
        }
        let new: Vec<Arc<str>> = self.group.by_regex.keys().filter(|regex| !self.group.regexes.contains_key(*regex)).cloned().collect();
        self.resolve(&new);
    }

    /// After topics have changed all are resolved again; not at once if that was done just now, and not all in one decision if they are many.
    pub(super) fn refresh_regexes(&mut self) {
        let now = self.around.now.steady;
        if self.group.memory.topics_seen != self.around.topics_version {
            self.group.memory.stale = self.group.regexes.keys().cloned().collect();
        }
        self.group.memory.resolve_at = None;
        if self.group.memory.stale.is_empty() {
            return;
        }
        let due = self.group.memory.resolved_at.map_or(now, |last| last.plus(RESOLVE_INTERVAL_MS));
        if due > now {
            self.group.memory.resolve_at = Some(due);
            return;
        }
        let mut turn = Vec::new();
        while turn.len() < RESOLVED_AT_ONCE_MAX
            && let Some(regex) = self.group.memory.stale.pop_first()
        {
            turn.push(regex);
        }
        turn.retain(|regex| self.group.by_regex.contains_key(regex));
        self.resolve(&turn);
        if self.group.memory.stale.is_empty() {
            self.group.memory.resolved_at = Some(now);
        } else {
            self.group.memory.resolve_at = Some(now);
        }
    }

    fn resolve(&mut self, patterns: &[Arc<str>]) {
        let compiled: Vec<Option<Regex>> = patterns.iter().map(|pattern| compile(pattern).ok()).collect();
        let mut found: Vec<BTreeSet<Arc<str>>> = vec![BTreeSet::new(); patterns.len()];
        if !patterns.is_empty() {
            self.around.topics.each_name(&mut |name| {
                for (regex, found) in compiled.iter().zip(&mut found) {
                    if regex.as_ref().is_some_and(|regex| regex.is_match(name.as_str())) {
                        found.insert(name.as_str().into());
                    }
                }
            });
        }
        for (pattern, topics) in patterns.iter().zip(found) {
            let resolved = ResolvedRegex { topics, version: version(self.around.topics_version), timestamp: self.around.now.wall };
            self.put(ConsumerRecord::Regex(pattern.clone(), Some(resolved)));
        }
    }
}

fn version(topics_version: u64) -> i64 {
    i64::try_from(topics_version).unwrap_or(i64::MAX)
}

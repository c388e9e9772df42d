//! Which groups and topics are exported: kafka_exporter's include and exclude patterns, regular expressions that may match anywhere in a name.

use regex::Regex;

/// A pattern that is no regular expression.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadPattern(String);

/// Includes what matches the first and not the second.
#[derive(Clone, Debug)]
pub struct Filter {
    include: Option<Regex>,
    exclude: Option<Regex>,
}

impl Filter {
    /// kafka_exporter's defaults, `.*` and `^$`, cost nothing.
    pub fn new(include: &str, exclude: &str) -> Result<Self, BadPattern> {
        let compile = |text: &str, all: &str| match text {
            text if text == all || text.is_empty() => Ok(None),
            text => Regex::new(text).map(Some).map_err(|error| BadPattern(error.to_string())),
        };
        Ok(Self { include: compile(include, ".*")?, exclude: compile(exclude, "^$")? })
    }

    pub fn takes(&self, name: &str) -> bool {
        self.include.as_ref().is_none_or(|include| include.is_match(name))
            && !self.exclude.as_ref().is_some_and(|exclude| exclude.is_match(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_anywhere_unless_they_are_anchored() {
        let takes = |include, exclude, name| Filter::new(include, exclude).unwrap().takes(name);
        assert!(takes(".*", "^$", "billing") && takes("", "", "") && takes("bill", "^$", "my-billing"));
        assert!(!takes("^bill", "^$", "my-billing") && !takes(".*", "test", "a-test-group") && !takes("^(a|b)$", "^$", "c"));
        assert!(Filter::new("(", "^$").is_err() && Filter::new(".*", "[").is_err());
    }
}

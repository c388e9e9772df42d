//! Where settings come from: flags over environment over file. Gathers them under the names of the table and says what it didn't know.
//!
//! Opens no file and reads no environment: the caller hands both in.

use super::{
    key::{InvalidValue, Value},
    keys, not_used, properties,
};
use std::{collections::BTreeMap, fmt};

/// What the broker was started with.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// `--config`: the file's name, for messages, and its text.
    pub file: Option<(String, String)>,
    /// The process's environment; only `KAFKA_…` counts.
    pub environment: Vec<(String, String)>,
    /// Each `-o KEY=VALUE`, in order; the last of one key counts.
    pub flags: Vec<String>,
    /// This machine's name: what is advertised where a listener has no host.
    pub host_name: String,
}

/// Where a value was set, as messages name it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Origin {
    File(String),
    Environment(String),
    Flag,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(name) => f.write_str(name),
            Self::Environment(variable) => write!(f, "environment variable {variable}"),
            Self::Flag => f.write_str("-o"),
        }
    }
}

/// Why the broker doesn't start: found before anything is opened.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("{origin}: {error}")]
    Value { origin: Origin, error: InvalidValue },
    #[error("{file}: {error}")]
    File { file: String, error: properties::BadEscape },
    #[error("-o {0:?}: expected KEY=VALUE")]
    Flag(String),
    /// What a check across keys, or of what a value means, found; the text names the key.
    #[error("{0}")]
    Check(String),
}

/// The keys that are set, by the table's names, and what an operator should be told.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    /// The text as it was set, and its checked value.
    pub set: BTreeMap<&'static str, (String, Value)>,
    pub warnings: Vec<String>,
}

/// Reads all sources, the weakest first, so that a stronger one overwrites.
pub(super) fn gather(sources: &Sources) -> Result<Gathered, ConfigError> {
    let mut raw: BTreeMap<String, (String, Origin)> = BTreeMap::new();
    if let Some((file, text)) = &sources.file {
        let pairs = properties::parse(text).map_err(|error| ConfigError::File { file: file.clone(), error })?;
        for (name, value) in pairs {
            raw.insert(name, (value, Origin::File(file.clone())));
        }
    }
    for (variable, value) in &sources.environment {
        if let Some(name) = key_of_variable(variable) {
            raw.insert(name, (value.clone(), Origin::Environment(variable.clone())));
        }
    }
    for flag in &sources.flags {
        let (name, value) = flag.split_once('=').ok_or_else(|| ConfigError::Flag(flag.clone()))?;
        raw.insert(name.trim().to_owned(), (value.to_owned(), Origin::Flag));
    }
    let mut gathered = Gathered::default();
    for (name, (text, origin)) in raw {
        match keys::find(&name) {
            Some(key) => {
                let value = key.check(&text).map_err(|error| ConfigError::Value { origin, error })?;
                gathered.set.insert(key.name, (text.trim().to_owned(), value));
            }
            None => gathered.warnings.push(format!("{origin}: {}", unknown(&name))),
        }
    }
    Ok(gathered)
}

/// Variables of Kafka's images and start scripts that are no keys.
const NOT_KEYS: &[&str] = &[
    "KAFKA_VERSION",
    "KAFKA_HOME",
    "KAFKA_HEAP_OPTS",
    "KAFKA_LOG4J_OPTS",
    "KAFKA_OPTS",
    "KAFKA_JMX_OPTS",
    "KAFKA_JMX_PORT",
    "KAFKA_JVM_PERFORMANCE_OPTS",
    "KAFKA_GC_LOG_OPTS",
    "KAFKA_LOG4J_ROOT_LOGLEVEL",
    "KAFKA_LOG4J_LOGGERS",
    "KAFKA_TOOLS_LOG4J_LOGLEVEL",
    "KAFKA_JMX_HOSTNAME",
];

/// `KAFKA_LOG_DIRS` is `log.dirs`: `_` stands for a dot, `__` for an underscore, `___` for a dash, as in Apache Kafka's image
/// (`KafkaDockerWrapper`). Kubernetes puts `KAFKA_PORT…` and `KAFKA_SERVICE_…` beside a service called kafka; those are not meant.
fn key_of_variable(variable: &str) -> Option<String> {
    let name = variable.strip_prefix("KAFKA_").filter(|name| !name.is_empty())?;
    let of_kubernetes = name == "PORT" || name.starts_with("PORT_") || name.starts_with("SERVICE_");
    if NOT_KEYS.contains(&variable) || of_kubernetes {
        return None;
    }
    Some(name.to_ascii_lowercase().replace('_', ".").replace("...", "-").replace("..", "_"))
}

fn unknown(name: &str) -> String {
    if not_used::NOT_USED.contains(&name) || not_used::NOT_USED_PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        return format!("{name} is not used by highwater");
    }
    match nearest(name) {
        Some(near) => format!("unknown key {name}; did you mean {near}?"),
        None => format!("unknown key {name}"),
    }
}

/// The key that is the fewest letters away, if that is few enough to be a slip.
fn nearest(name: &str) -> Option<&'static str> {
    // A key of any length is compared, but a whole paragraph is not worth it.
    let name: Vec<char> = name.chars().take(100).collect();
    let (distance, near) = keys::KEYS.iter().map(|key| (edit_distance(&name, key.name), key.name)).min()?;
    (distance <= name.len() / 3).then_some(near)
}

/// Letters to insert, remove or replace to get from one word to the other (Levenshtein).
fn edit_distance(from: &[char], to: &str) -> usize {
    let mut row: Vec<usize> = (0..=from.len()).collect();
    for (i, wanted) in to.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        if let Some(first) = row.first_mut() {
            *first = left;
        }
        for (letter, cell) in from.iter().zip(row.iter_mut().skip(1)) {
            let replaced = diagonal + usize::from(*letter != wanted);
            diagonal = *cell;
            left = replaced.min(left + 1).min(*cell + 1);
            *cell = left;
        }
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(flags: &[&str]) -> Sources {
        Sources { flags: flags.iter().map(|flag| (*flag).to_owned()).collect(), ..Sources::default() }
    }

    fn warnings(name: &str) -> Vec<String> {
        gather(&flags(&[&format!("{name}=1")])).unwrap().warnings
    }

    #[test]
    fn a_flag_wins_over_the_environment_and_that_over_the_file() {
        let file = "num.partitions=1\nlog.dirs=/file\nfetch.max.bytes=2000\n";
        let sources = Sources {
            file: Some(("server.properties".to_owned(), file.to_owned())),
            environment: vec![
                ("KAFKA_NUM_PARTITIONS".to_owned(), "2".to_owned()),
                ("KAFKA_LOG_DIRS".to_owned(), "/env".to_owned()),
                ("HOME".to_owned(), "/root".to_owned()),
                ("KAFKA_HEAP_OPTS".to_owned(), "-Xmx1g".to_owned()),
                ("KAFKA_PORT_9092_TCP_ADDR".to_owned(), "10.0.0.1".to_owned()),
            ],
            flags: vec!["num.partitions=3".to_owned(), "num.partitions = 4 ".to_owned()],
            ..Sources::default()
        };
        let gathered = gather(&sources).unwrap();
        assert_eq!(gathered.warnings, [""; 0]);
        let set: Vec<(&str, &str)> = gathered.set.iter().map(|(name, (text, _))| (*name, text.as_str())).collect();
        assert_eq!(set, [("fetch.max.bytes", "2000"), ("log.dirs", "/env"), ("num.partitions", "4")]);
    }

    #[test]
    fn variables_are_named_as_in_kafkas_image() {
        assert_eq!(key_of_variable("KAFKA_LOG_DIRS").as_deref(), Some("log.dirs"));
        assert_eq!(key_of_variable("KAFKA_A__B___C_D").as_deref(), Some("a_b-c.d"));
        assert_eq!(key_of_variable("LOG_DIRS"), None);
    }

    #[test]
    fn an_unknown_key_is_a_warning_that_helps() {
        assert_eq!(warnings("num.partition"), ["-o: unknown key num.partition; did you mean num.partitions?"]);
        assert_eq!(warnings("log.retention.mins"), ["-o: unknown key log.retention.mins; did you mean log.retention.ms?"]);
        assert_eq!(warnings("num.network.threads"), ["-o: num.network.threads is not used by highwater"]);
        assert_eq!(warnings("ssl.keystore.location"), ["-o: ssl.keystore.location is not used by highwater"]);
        assert_eq!(warnings("zzz"), ["-o: unknown key zzz"]);
    }

    #[test]
    fn a_bad_value_names_its_source() {
        let error = gather(&flags(&["num.partitions=0"])).unwrap_err().to_string();
        assert_eq!(error, "-o: Invalid value 0 for configuration num.partitions: Value must be at least 1");
        let environment = vec![("KAFKA_NODE_ID".to_owned(), "one".to_owned())];
        let error = gather(&Sources { environment, ..Sources::default() }).unwrap_err().to_string();
        assert_eq!(error, "environment variable KAFKA_NODE_ID: Invalid value one for configuration node.id: Not a number of type INT");
        assert_eq!(gather(&flags(&["num.partitions"])).unwrap_err().to_string(), "-o \"num.partitions\": expected KEY=VALUE");
        let file = Some(("a.properties".to_owned(), "x=\\uzzzz".to_owned()));
        let error = gather(&Sources { file, ..Sources::default() }).unwrap_err().to_string();
        assert_eq!(error, "a.properties: line 1: a \\u escape needs four hexadecimal digits");
    }

    #[test]
    fn no_key_that_is_used_is_called_not_used() {
        for key in keys::KEYS.iter() {
            assert!(!not_used::NOT_USED.contains(&key.name), "{}", key.name);
        }
        let distance = |a: &str, b: &str| edit_distance(&a.chars().collect::<Vec<_>>(), b);
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", ""), distance("ab", "ab")), (3, 3, 3, 0));
    }
}

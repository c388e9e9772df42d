//! `listeners`, `advertised.listeners` and `http.listeners`: parsed and checked against each other, as `KafkaConfig` checks them.
//!
//! Binds nothing and resolves no name.

use super::sources::ConfigError;
use std::{collections::BTreeMap, fmt};

/// A host and a port; an IPv6 address prints in brackets.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct HostPort {
    /// Empty for every interface.
    pub host: String,
    /// 0 for any free one.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') { write!(f, "[{}]:{}", self.host, self.port) } else { write!(f, "{}:{}", self.host, self.port) }
    }
}

/// One place where clients connect. All speak PLAINTEXT, the only protocol there is yet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listener {
    /// In capitals, as Kafka has it.
    pub name: String,
    pub bind: HostPort,
    /// What clients are told; port 0 stands for the port that was bound.
    pub advertised: HostPort,
}

/// The values of the keys that together say where clients connect.
pub(super) struct ListenerKeys<'a> {
    pub listeners: &'a str,
    pub advertised: Option<&'a str>,
    pub protocols: &'a str,
    pub controllers: &'a str,
    pub host_name: &'a str,
}

fn check(text: impl Into<String>) -> ConfigError {
    ConfigError::Check(text.into())
}

/// The listeners in their order.
pub(super) fn parse(keys: &ListenerKeys<'_>) -> Result<Vec<Listener>, ConfigError> {
    let controllers: Vec<String> = items(keys.controllers).map(str::to_uppercase).collect();
    let mut endpoints = endpoints("listeners", keys.listeners)?;
    endpoints.retain(|(name, _)| !controllers.contains(name));
    if endpoints.is_empty() {
        return Err(check("listeners: at least one listener must be left for clients"));
    }
    for (i, (name, at)) in endpoints.iter().enumerate() {
        for (other_name, other) in endpoints.iter().skip(i + 1) {
            if name == other_name {
                return Err(check(format!("listeners: each listener must have its own name, but {name} is there twice")));
            }
            // One port may serve an IPv4 and an IPv6 address.
            if at.port == other.port && at.port != 0 && at.host.contains(':') == other.host.contains(':') {
                return Err(check(format!("listeners: each listener must have its own port, but {} is there twice", at.port)));
            }
        }
    }
    let protocols = protocols(keys.protocols)?;
    for (name, _) in &endpoints {
        match protocols.get(name).map(String::as_str) {
            Some("PLAINTEXT") => {}
            Some(other) => return Err(check(format!("listeners: {name} is to speak {other}, but only PLAINTEXT can be served yet"))),
            None => return Err(check(format!("listeners: No security protocol defined for listener {name}"))),
        }
    }
    advertise(keys, endpoints, &controllers)
}

fn advertise(keys: &ListenerKeys<'_>, listeners: Vec<(String, HostPort)>, controllers: &[String]) -> Result<Vec<Listener>, ConfigError> {
    let advertised = match keys.advertised {
        Some(text) => endpoints("advertised.listeners", text)?,
        None => Vec::new(),
    };
    for (name, _) in &advertised {
        if !controllers.contains(name) && !listeners.iter().any(|(known, _)| known == name) {
            let valid: Vec<&str> = listeners.iter().map(|(name, _)| name.as_str()).collect();
            return Err(check(format!(
                "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. \
                 Found {name}. The valid options based on the current configuration are {}",
                valid.join(",")
            )));
        }
    }
    let with_advertised = |(name, bind): (String, HostPort)| {
        let stated = advertised.iter().find(|(known, _)| *known == name).map(|(_, at)| at.clone());
        let mut told = stated.unwrap_or_else(|| bind.clone());
        if told.host.is_empty() {
            keys.host_name.clone_into(&mut told.host);
        }
        if told.host == "0.0.0.0" || told.host == "::" {
            return Err(check(
                "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address. \
                 (It defaults to listeners: set advertised.listeners, or leave the host in listeners empty for this machine's name.)",
            ));
        }
        Ok(Listener { name, bind, advertised: told })
    };
    listeners.into_iter().map(with_advertised).collect()
}

fn items(list: &str) -> impl Iterator<Item = &str> {
    list.split(',').map(str::trim).filter(|item| !item.is_empty())
}

/// `NAME://HOST:PORT` and so on (`SocketServerConfigs.listenerListToEndPoints`).
fn endpoints(key: &str, list: &str) -> Result<Vec<(String, HostPort)>, ConfigError> {
    let one = |item: &str| {
        let (name, rest) = item.split_once("://")?;
        let name_is_fine = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
        name_is_fine.then(|| host_port(rest))?.map(|at| (name.to_uppercase(), at))
    };
    items(list)
        .map(|item| one(item).ok_or_else(|| check(format!("{key}: Unable to parse {item} to a broker endpoint (NAME://HOST:PORT)"))))
        .collect()
}

/// `HOST:PORT`, `[IPV6]:PORT` or `:PORT`.
fn host_port(text: &str) -> Option<HostPort> {
    let (host, port) = text.rsplit_once(':')?;
    let host = host.strip_prefix('[').map_or(Some(host), |inner| inner.strip_suffix(']'))?;
    let fine = host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '%' | '.' | '_' | ':'));
    let port = port.parse().ok()?;
    fine.then(|| HostPort { host: host.to_owned(), port })
}

fn protocols(map: &str) -> Result<BTreeMap<String, String>, ConfigError> {
    let one = |item: &str| {
        let (name, protocol) = item.split_once(':')?;
        Some((name.trim().to_uppercase(), protocol.trim().to_uppercase()))
    };
    let parsed: Option<BTreeMap<_, _>> = items(map).map(one).collect();
    parsed.ok_or_else(|| check(format!("listener.security.protocol.map: expected NAME:PROTOCOL pairs, not {map}")))
}

/// `http.listeners`: `HOST:PORT` with or without `http://`.
pub(super) fn parse_http(list: &str) -> Result<Vec<HostPort>, ConfigError> {
    let one = |item: &str| host_port(item.strip_prefix("http://").unwrap_or(item).trim_end_matches('/'));
    items(list)
        .map(|item| one(item).ok_or_else(|| check(format!("http.listeners: Unable to parse {item} (HOST:PORT or http://HOST:PORT)"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROTOCOLS: &str = "PLAINTEXT:PLAINTEXT,SSL:SSL,INSIDE:PLAINTEXT";

    fn listeners(listeners: &str, advertised: Option<&str>) -> Result<Vec<String>, String> {
        let keys = ListenerKeys { listeners, advertised, protocols: PROTOCOLS, controllers: "CONTROLLER", host_name: "box" };
        let shown = |listener: Listener| format!("{} {} {}", listener.name, listener.bind, listener.advertised);
        parse(&keys).map(|all| all.into_iter().map(shown).collect()).map_err(|error| error.to_string())
    }

    fn refused(text: &str, advertised: Option<&str>) -> String {
        listeners(text, advertised).unwrap_err()
    }

    #[test]
    fn what_is_not_advertised_otherwise_is_advertised_as_it_listens() {
        assert_eq!(listeners("plaintext://127.0.0.1:0", None).unwrap(), ["PLAINTEXT 127.0.0.1:0 127.0.0.1:0"]);
        assert_eq!(listeners("PLAINTEXT://:9092", None).unwrap(), ["PLAINTEXT :9092 box:9092"]);
        assert_eq!(
            listeners(" PLAINTEXT://0.0.0.0:9092 , INSIDE://[::1]:9092,CONTROLLER://:9093", Some("PLAINTEXT://kafka.example:19092"))
                .unwrap(),
            ["PLAINTEXT 0.0.0.0:9092 kafka.example:19092", "INSIDE [::1]:9092 [::1]:9092"]
        );
    }

    #[test]
    fn what_cannot_work_is_refused() {
        assert!(refused("PLAINTEXT://0.0.0.0:9092", None).contains("cannot use the nonroutable meta-address 0.0.0.0"));
        assert!(refused("SSL://:9093", None).contains("SSL is to speak SSL, but only PLAINTEXT"));
        assert!(refused("OTHER://:9093", None).contains("No security protocol defined for listener OTHER"));
        assert!(refused("PLAINTEXT://a:1,INSIDE://b:1", None).contains("own port"));
        assert!(refused("PLAINTEXT://a:1,PLAINTEXT://b:2", None).contains("own name"));
        assert!(refused("CONTROLLER://:9093", None).contains("at least one listener"));
        assert!(refused("PLAINTEXT://:9092", Some("INSIDE://a:1")).contains("Found INSIDE. The valid options"));
        for text in
            ["localhost:9092", "PLAINTEXT://localhost", "PLAINTEXT://localhost:99999", "PLAINTEXT://a b:1", "://a:1", "PLAINTEXT://[::1:1"]
        {
            assert!(refused(text, None).contains("Unable to parse"), "{text}");
        }
    }

    #[test]
    fn http_takes_two_forms_or_none() {
        let http = |text: &str| parse_http(text).map(|all| all.iter().map(HostPort::to_string).collect::<Vec<_>>());
        assert_eq!(http("127.0.0.1:9308").unwrap(), ["127.0.0.1:9308"]);
        assert_eq!(http("http://[::1]:0/, http://:8080").unwrap(), ["[::1]:0", ":8080"]);
        assert_eq!(http("").unwrap(), [""; 0]);
        assert!(http("https://a:1").is_err());
    }
}

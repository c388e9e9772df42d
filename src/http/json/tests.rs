//! Requests read, whoever sends them; what answers say is tested with real clients, in `compat-tests/tests/lag.rs`.

use super::*;

fn asked(uri: &str) -> (StatusCode, String) {
    let uri: Uri = uri.parse().unwrap();
    let response = answer(None, &uri);
    let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
    (response.status(), kind)
}

#[test]
fn paths_are_told_apart_and_names_decoded() {
    let of = |pattern, path| names(pattern, path);
    assert_eq!(of("/api/groups", "/api/groups"), Some(vec![]));
    assert_eq!(of("/api/groups/{group}", "/api/groups/a%2Fb"), Some(vec!["a%2Fb"]));
    assert_eq!(of("/api/groups/{group}", "/api/groups"), None);
    assert_eq!(of("/api/groups", "/api/groups/"), None);
    assert_eq!(of("/api/groups/{group}", "/api/groups/a/b"), None);
    let records = "/api/topics/{topic}/partitions/{partition}/records";
    assert_eq!(of(records, "/api/topics/t/partitions/0/records"), Some(vec!["t", "0"]));
    for (text, plain) in [("a%2Fb%20c", "a/b c"), ("100%", "100%"), ("%zz%4", "%zz%4"), ("%C3%BC", "ü"), ("%0A%22", "\n\""), ("%+1", "%+1")]
    {
        assert_eq!(decoded(text).as_deref(), Some(plain));
    }
    assert_eq!(decoded("%ff"), None);
}

#[test]
fn a_plus_is_a_space_in_a_query_and_a_plus_in_a_path() {
    for (text, plain) in [("a+b", "a b"), ("a%20b", "a b"), ("a%2Bb", "a+b"), ("+", " "), ("%2+5", "%2 5")] {
        assert_eq!(decoded_in_query(text).as_deref(), Some(plain));
    }
    assert_eq!(decoded_in_query("%ff"), None);
    assert_eq!(decoded("a+b").as_deref(), Some("a+b"));
}

#[test]
fn every_endpoint_is_found_once() {
    for endpoint in ENDPOINTS {
        let path = endpoint.path.replace(['{', '}'], "");
        assert_eq!(ENDPOINTS.iter().filter(|other| names(other.path, &path).is_some()).count(), 1, "{path}");
        assert!(!endpoint.doc.is_empty() && !endpoint.doc.contains('|'), "{path}");
    }
    assert_eq!(readme_table().lines().count(), ENDPOINTS.len() + 2);
}

#[test]
fn a_broker_that_starts_says_so_in_json() {
    assert_eq!(asked("/api/overview"), (StatusCode::SERVICE_UNAVAILABLE, "application/json".to_owned()));
}

proptest::proptest! {
    #[test]
    fn any_path_is_read_without_harm(path in "/[ -~]{0,60}") {
        for endpoint in ENDPOINTS {
            let _ = names(endpoint.path, &path).map(|names| names.into_iter().map(decoded).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_name_survives_its_way(name in ".*") {
        let encoded: String = name.bytes().map(|byte| format!("%{byte:02X}")).collect();
        proptest::prop_assert_eq!(decoded(&encoded), Some(name));
    }
}

//! The console's files, embedded by `build.rs`, as answers: content types, entity tags, and a policy that lets the page load nothing from
//! anywhere else.

use axum::{
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};

/// One file of the console.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Below `console/`, with slashes.
    pub path: &'static str,
    /// Quoted, as in the header.
    pub etag: &'static str,
    pub bytes: &'static [u8],
}

include!(concat!(env!("OUT_DIR"), "/assets.rs"));

/// What `/` answers with.
const INDEX: &str = "index.html";

/// Scripts, styles and data come from this listener alone, and nothing inline runs: a record's value that got into the page as markup by a
/// mistake would still do nothing.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; font-src 'self'; \
     base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The file for a request's path, if the console has it.
pub fn find(path: &str) -> Option<&'static Asset> {
    find_in(ASSETS, path)
}

fn find_in(assets: &'static [Asset], path: &str) -> Option<&'static Asset> {
    let path = path.strip_prefix('/')?;
    let path = if path.is_empty() { INDEX } else { path };
    assets.binary_search_by(|asset| asset.path.cmp(path)).ok().and_then(|at| assets.get(at))
}

fn content_type(path: &str) -> &'static str {
    match path.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "woff2" => "font/woff2",
        "txt" => "text/plain; charset=utf-8",
        _ => "application/octet-stream",
    }
}

/// The answer with a file; only that it is unchanged, if the client has it.
pub fn serve(asset: &'static Asset, asked: &HeaderMap) -> Response {
    let has = |tags: &str| tags.split(',').any(|tag| matches!(tag.trim().trim_start_matches("W/"), tag if tag == "*" || tag == asset.etag));
    let known = asked.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok()).is_some_and(has);
    let mut answer = if known { StatusCode::NOT_MODIFIED.into_response() } else { asset.bytes.into_response() };
    let headers = answer.headers_mut();
    let fixed: [(HeaderName, &'static str); 6] = [
        (header::CONTENT_TYPE, content_type(asset.path)),
        (header::ETAG, asset.etag),
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    static SOME: &[Asset] = &[
        Asset { path: "app.js", etag: "\"a\"", bytes: b"1" },
        Asset { path: "img/logo.svg", etag: "\"b\"", bytes: b"<svg/>" },
        Asset { path: "index.html", etag: "\"c\"", bytes: b"<p>" },
    ];

    #[test]
    fn paths_are_found_as_they_stand_and_nothing_else_is() {
        let path = |asked| find_in(SOME, asked).map(|asset| asset.path);
        assert_eq!(
            ["/", "/index.html", "/app.js", "/img/logo.svg"].map(path).map(Option::unwrap),
            ["index.html", "index.html", "app.js", "img/logo.svg"]
        );
        for other in ["", "app.js", "/img", "/img/", "/../Cargo.toml", "//app.js", "/APP.JS", "/app.js/"] {
            assert_eq!(path(other), None, "{other}");
        }
        assert!(ASSETS.windows(2).all(|pair| pair[0].path < pair[1].path), "the search needs them sorted");
    }

    #[test]
    fn an_answer_says_what_it_is_and_what_the_page_may_load() {
        let answer = serve(&SOME[0], &HeaderMap::new());
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/javascript; charset=utf-8");
        assert_eq!(answer.headers()[header::ETAG], "\"a\"");
        let policy = answer.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';") && !policy.contains("unsafe") && !policy.contains("http"));
    }

    #[test]
    fn who_has_the_file_is_told_so() {
        let status = |tags: &str| {
            let asked = HeaderMap::from_iter([(header::IF_NONE_MATCH, HeaderValue::from_str(tags).unwrap())]);
            serve(&SOME[0], &asked).status()
        };
        assert_eq!(status("\"a\""), StatusCode::NOT_MODIFIED);
        assert_eq!(status("\"x\", W/\"a\""), StatusCode::NOT_MODIFIED);
        assert_eq!(status("\"x\""), StatusCode::OK);
    }
}

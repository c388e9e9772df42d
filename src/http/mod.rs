//! HTTP beside health and metrics: the JSON API under `/api/` and the console at `/`. GET and HEAD only, nothing is changed by either.
//!
//! [`Pages`] is what the listener falls back to. `json` has the table of endpoints and reads an answer off the lag, the logs and the metadata;
//! [`view`] is what the answers look like; `assets` are the console's files.

mod assets;
pub mod json;
pub mod view;

use crate::api::Context;
use axum::{
    Router,
    extract::{Request, State},
    http::{StatusCode, Uri},
    response::{IntoResponse, Response},
};
use std::sync::{Arc, OnceLock};
use tokio::sync::Semaphore;

/// Answers under way at once. Each may read files; the rest wait.
const ANSWERS_MAX: usize = 4;

/// What answers are read off, once the broker has started.
pub struct Broker {
    pub context: Arc<Context>,
    /// Where HTTP listens.
    pub http: Vec<String>,
}

/// The pages. Made before the broker is there, and told of it.
#[derive(Clone)]
pub struct Pages {
    broker: Arc<OnceLock<Broker>>,
    turns: Arc<Semaphore>,
}

impl Default for Pages {
    fn default() -> Self {
        Self { broker: Arc::default(), turns: Arc::new(Semaphore::new(ANSWERS_MAX)) }
    }
}

impl Pages {
    /// The broker has started.
    pub fn open(&self, broker: Broker) {
        let _ = self.broker.set(broker);
    }

    pub fn router(&self) -> Router {
        Router::new().fallback(axum::routing::get(page)).with_state(self.clone())
    }
}

async fn page(State(pages): State<Pages>, request: Request) -> Response {
    let path = request.uri().path();
    if path == "/api" || path.starts_with("/api/") {
        return api(pages, request.uri().clone()).await;
    }
    match assets::find(path) {
        Some(asset) => assets::serve(asset, request.headers()),
        None if path == "/" => index().into_response(),
        None => (StatusCode::NOT_FOUND, "not found: see /\n").into_response(),
    }
}

/// What a build without the console says.
fn index() -> String {
    let mut text = concat!(
        "highwater ",
        env!("CARGO_PKG_VERSION"),
        "\n\n/metrics  for Prometheus\n/healthz  200 while the process runs\n/readyz   200 when clients are served, 503 and the reason when not\n"
    )
    .to_owned();
    json::ENDPOINTS.iter().for_each(|endpoint| text.push_str(&format!("{}\n", endpoint.path)));
    text
}

/// An answer is read on a thread that may block, a few at a time.
async fn api(pages: Pages, uri: Uri) -> Response {
    let Ok(turn) = pages.turns.clone().acquire_owned().await else {
        return StatusCode::SERVICE_UNAVAILABLE.into_response();
    };
    let answered = tokio::task::spawn_blocking(move || {
        // Held until it is read, also where the connection is closed before.
        let _turn = turn;
        json::answer(pages.broker.get(), &uri)
    })
    .await;
    answered.unwrap_or_else(|error| {
        tracing::error!(%error, "answer a request for JSON");
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    })
}

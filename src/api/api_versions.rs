//! ApiVersions (key 18), versions 0 to 4.
//!
//! - Answered on every connection, before anything else; the answer's header is version 0 in all versions.
//! - An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the range of this API alone; its body is not read (KIP-511).
//! - Version 3 is flexible and brings the client's name and version: either one malformed is INVALID_REQUEST.
//! - From version 3 on the features that this build has and the cluster's levels of them. One that can be at level 0 is not told to
//!   clients before version 4, which can't decode that (KAFKA-17492); its level is.

use super::{APIS, Api, Body, Context, FrameMax, Request, convert::text};
use crate::{
    cluster::{FEATURES, Feature, Levels},
    codec::{
        Reply,
        reply::{EncodeError, ReplyHeader},
        shape::{Shape, TEXT, since},
    },
    net::{Answer, Refusal, Software},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse,
    api_versions_response::{ApiVersion, FinalizedFeatureKey, SupportedFeatureKey},
};
use std::sync::Arc;

pub const API: Api = Api {
    key: 18,
    name: "ApiVersions",
    versions: 0..=4,
    advertised_min: 0,
    flexible_since: 3,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[since(3, TEXT), since(3, TEXT)])),
    run,
    note: "an unknown version is answered, not refused (KIP-511)",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ApiVersionsRequest = request.decode()?;
    let named = |text: &str| software_text_is_legal(text);
    if request.version() >= 3 && !(named(&asked.client_software_name) && named(&asked.client_software_version)) {
        let error = ErrorCode::InvalidRequest;
        return request.ready(&ApiVersionsResponse::default().with_error_code(error.code()), error);
    }
    if request.version() >= 3 {
        // It says the same each time.
        let _ = request.connection.software.set(Software::new(&asked.client_software_name, &asked.client_software_version));
    }
    let response = ApiVersionsResponse::default().with_api_keys(APIS.iter().map(|api| range(api)).collect());
    let response = if request.version() >= 3 { with_features(response, &context.image().features, request.version()) } else { response };
    request.ready(&response, ErrorCode::None)
}

fn with_features(response: ApiVersionsResponse, levels: &Levels, version: i16) -> ApiVersionsResponse {
    let supported =
        |feature: &Feature| SupportedFeatureKey::default().with_name(text(feature.name)).with_min_version(0).with_max_version(feature.max);
    let finalized = |feature: &Feature| {
        let level = levels.of(feature);
        let key = FinalizedFeatureKey::default().with_name(text(feature.name));
        (level > 0).then(|| key.with_max_version_level(level).with_min_version_level(level))
    };
    let response = if version >= 4 { response.with_supported_features(FEATURES.iter().map(supported).collect()) } else { response };
    response.with_finalized_features_epoch(levels.epoch).with_finalized_features(FEATURES.iter().filter_map(finalized).collect())
}

fn range(api: &Api) -> ApiVersion {
    ApiVersion::default().with_api_key(api.key).with_min_version(api.advertised_min).with_max_version(*api.versions.end())
}

/// The answer to a version that isn't served.
pub fn unsupported(correlation_id: i32) -> Result<Reply, EncodeError> {
    let error = ErrorCode::UnsupportedVersion;
    let response = ApiVersionsResponse::default().with_error_code(error.code()).with_api_keys(vec![range(&API)]);
    Reply::encode(ReplyHeader { correlation_id, tagged: false }, &response, 0, error)
}

/// `[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?`, Kafka's `ApiVersionsRequest.SOFTWARE_NAME_VERSION_PATTERN`.
fn software_text_is_legal(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let edge = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inner)
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::survives, *};
    use crate::cluster::TRANSACTION_VERSION;

    #[test]
    fn features_are_told_to_those_who_can_read_them() {
        for (level, version) in [(0, 3), (0, 4), (1, 3), (2, 4)] {
            let mut levels = Levels { epoch: 5, ..Levels::default() };
            levels.set.insert(TRANSACTION_VERSION.name.to_owned(), level);
            let response = with_features(ApiVersionsResponse::default(), &levels, version);
            survives(&response, version);
            let supported: Vec<_> = response.supported_features.iter().map(|f| (f.name.as_str(), f.min_version, f.max_version)).collect();
            assert_eq!(supported.contains(&("transaction.version", 0, 2)), version >= 4);
            let finalized = response.finalized_features.iter().find(|f| f.name.as_str() == "transaction.version");
            assert_eq!(finalized.map(|f| f.max_version_level), (level > 0).then_some(level));
            assert_eq!(response.finalized_features_epoch, 5);
        }
    }

    #[test]
    fn software_names_follow_kafkas_pattern() {
        for legal in ["a", "apache-kafka-java", "4.4.0", "a.b-c9"] {
            assert!(software_text_is_legal(legal), "{legal}");
        }
        for illegal in ["", "-a", "a-", "a b", "a/b", "é", "."] {
            assert!(!software_text_is_legal(illegal), "{illegal}");
        }
    }
}

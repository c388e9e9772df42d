//! UpdateFeatures (key 57), versions 0 to 2.
//!
//! - Sets the levels of features (`transaction.version`, `group.version`), all or none; clients find them in ApiVersions. `validate_only` tries from version 1 on.
//! - A downgrade must say that it is one (`upgrade_type`, version 1); version 0's `allow_downgrade` is not enough, as in Kafka.
//! - What follows goes by the new levels: the coordinator of transactions knows before the answer.
//! - An error is the request's; up to version 1 each feature has an answer when all went well.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{on_disk_thread, text},
};
use crate::{
    cluster::{Cluster, FeatureUpdate, UpdateFeaturesError, UpgradeType},
    codec::shape::{BOOL, I8, I16, I32, Kind, Shape, TEXT, always, since, until},
    net::{Answer, Refusal},
    txn::TransactionVersion,
    types::ErrorCode,
};
use kafka_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse, update_features_response::UpdatableFeatureResult};
use std::sync::Arc;

pub const API: Api = Api {
    key: 57,
    name: "UpdateFeatures",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[
        always(I32),
        always(Kind::Structs(&[always(TEXT), always(I16), until(0, BOOL), since(1, I8)])),
        since(1, BOOL),
    ])),
    run,
    note: "`transaction.version` 0 to 2, `group.version` 0 and 1",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: UpdateFeaturesRequest = request.decode()?;
    on_disk_thread(context, request, move |context, request| {
        let answer = update(&context.cluster, &asked, request.version());
        context.transactions.follow_version(|| TransactionVersion(context.image().transaction_version()));
        answer
    })
}

fn update(cluster: &Cluster, asked: &UpdateFeaturesRequest, version: i16) -> (UpdateFeaturesResponse, ErrorCode) {
    let update = |update: &kafka_protocol::messages::update_features_request::FeatureUpdateKey| FeatureUpdate {
        name: update.feature.to_string(),
        level: update.max_version_level,
        upgrade_type: UpgradeType::from_code(update.upgrade_type),
    };
    let updates: Vec<_> = asked.feature_updates.iter().map(update).collect();
    let response = UpdateFeaturesResponse::default();
    match cluster.update_features(&updates, asked.validate_only) {
        Ok(()) if version <= 1 => {
            let done = |update: FeatureUpdate| UpdatableFeatureResult::default().with_feature(text(update.name)).with_error_message(None);
            let results = updates.into_iter().map(done).collect();
            (response.with_error_message(None).with_results(results), ErrorCode::None)
        }
        Ok(()) => (response.with_error_message(None), ErrorCode::None),
        Err(error) => {
            let code = match &error {
                UpdateFeaturesError::Invalid(_) => ErrorCode::InvalidUpdateVersion,
                UpdateFeaturesError::Admin(error) => error.into(),
            };
            let message = format!("The update failed for all features since the following feature had an error: {error}");
            (response.with_error_code(code.code()).with_error_message(Some(text(message))), code)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::update_features_request::FeatureUpdateKey;

    #[test]
    fn each_version_sets_and_refuses() {
        for version in API.versions.clone() {
            let cluster = cluster(&[]);
            let asked = |level: i16, upgrade_type: i8| {
                let update = FeatureUpdateKey::default().with_feature(text("transaction.version"));
                let update = update.with_max_version_level(level).with_upgrade_type(upgrade_type);
                UpdateFeaturesRequest::default().with_feature_updates(vec![update])
            };
            let (refused, error) = update(&cluster, &asked(1, 1), version);
            assert_eq!((error, refused.error_code, refused.results.len()), (ErrorCode::InvalidUpdateVersion, error.code(), 0));
            survives(&refused, version);
            let (tried, error) = update(&cluster, &asked(1, 2).with_validate_only(true), version);
            assert_eq!((error, tried.results.len()), (ErrorCode::None, usize::from(version <= 1)));
            let level = || cluster.image().features.of(&crate::cluster::TRANSACTION_VERSION);
            assert_eq!(level(), 2);
            let (done, error) = update(&cluster, &asked(1, 2), version);
            assert_eq!((error, level()), (ErrorCode::None, 1));
            survives(&done, version);
        }
    }
}

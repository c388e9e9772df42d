//! DeleteTopics (key 20), versions 1 to 6.
//!
//! - A deleted topic is gone from the metadata before the answer; its files go after `file.delete.delay.ms`, also over a restart.
//! - Version 4 is flexible, 5 answers with messages, 6 deletes by id as well as by name. Both for one topic, or a name or an id twice,
//!   is INVALID_REQUEST.
//! - With `delete.topic.enable=false` every topic is TOPIC_DELETION_DISABLED (before version 3: INVALID_REQUEST).
//! - Gap: the time limit is not looked at.

use super::{
    Api, Body, Context, FrameMax, Request,
    convert::{first_error, on_disk_thread, text, topic_name},
};
use crate::{
    cluster::{AdminError, Cluster, Image},
    codec::shape::{I32, Kind, Shape, TEXT, UUID, always, since, until},
    net::{Answer, Refusal},
    types::{ErrorCode, TopicId},
};
use kafka_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse, TopicName, delete_topics_response::DeletableTopicResult};
use std::{collections::HashMap, sync::Arc};

pub const API: Api = Api {
    key: 20,
    name: "DeleteTopics",
    versions: 1..=6,
    advertised_min: 1,
    flexible_since: 4,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[since(6, Kind::Structs(&[always(TEXT), always(UUID)])), until(5, Kind::Array(&TEXT)), always(I32)])),
    run,
    note: "by name and by id; the files go after file.delete.delay.ms",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: DeleteTopicsRequest = request.decode()?;
    on_disk_thread(context, request, move |context, request| {
        let response = answer(&context.cluster, context.config.delete_topic_enable, request.version(), &asked);
        let error = first_error(response.responses.iter().map(|topic| topic.error_code));
        (response, error)
    })
}

/// A topic as the request names it.
type Named = (Option<TopicName>, TopicId);

fn answer(cluster: &Cluster, enabled: bool, version: i16, asked: &DeleteTopicsRequest) -> DeleteTopicsResponse {
    let by_name = asked.topic_names.iter().map(|name| (Some(name.clone()), TopicId::ZERO));
    let named: Vec<Named> = by_name.chain(asked.topics.iter().map(|topic| (topic.name.clone(), TopicId(topic.topic_id)))).collect();
    if !enabled {
        let code = if version < 3 { ErrorCode::InvalidRequest } else { ErrorCode::TopicDeletionDisabled };
        let refuse = |(name, id): Named| result(name, id, code, "Topic deletion is disabled.");
        return DeleteTopicsResponse::default().with_responses(named.into_iter().map(refuse).collect());
    }
    let mut results = Vec::new();
    let mut delete = Vec::new();
    let image = cluster.image();
    let mut times: HashMap<&Named, usize> = HashMap::new();
    named.iter().for_each(|one| *times.entry(one).or_default() += 1);
    for one in &named {
        match times.get_mut(one) {
            Some(0) | None => {}
            Some(times) => match find(&image, one, std::mem::take(times)) {
                Ok(topic) => delete.push((topic.id, topic_name(&topic.name), one)),
                Err(refused) => results.push(refused),
            },
        }
    }
    refuse_named_both_ways(&mut delete, &mut results);
    let ids: Vec<TopicId> = delete.iter().map(|(id, ..)| *id).collect();
    for ((id, name, _), reply) in delete.into_iter().zip(cluster.delete_topics(&ids)) {
        results.push(match reply {
            Ok(_) => DeletableTopicResult::default().with_name(Some(name)).with_topic_id(id.0),
            Err(error) => failed(Some(name), id, &error),
        });
    }
    DeleteTopicsResponse::default().with_responses(results)
}

/// The topic that is meant, or the answer that it can't be deleted.
fn find<'a>(image: &'a Image, (name, id): &Named, times: usize) -> Result<&'a crate::cluster::Topic, DeletableTopicResult> {
    let invalid = |why: &str| Err(result(name.clone(), *id, ErrorCode::InvalidRequest, why));
    match name {
        Some(_) if !id.is_zero() => invalid("You may not specify both topic name and topic id."),
        Some(_) if times > 1 => invalid("Duplicate topic name."),
        Some(text) => image.topic(text).map(|topic| &**topic).ok_or_else(|| failed(name.clone(), *id, &AdminError::UnknownTopic)),
        None if id.is_zero() => invalid("Neither topic name nor id were specified."),
        None if times > 1 => invalid("Duplicate topic id."),
        None => image.topic_by_id(*id).map(|topic| &**topic).ok_or_else(|| failed(None, *id, &AdminError::UnknownTopicId)),
    }
}

/// One topic named once by its name and once by its id: an error for the name, and it stays.
fn refuse_named_both_ways(delete: &mut Vec<(TopicId, TopicName, &Named)>, results: &mut Vec<DeletableTopicResult>) {
    let mut times: HashMap<TopicId, usize> = HashMap::new();
    delete.iter().for_each(|(id, ..)| *times.entry(*id).or_default() += 1);
    delete.retain(|(id, name, named)| {
        let twice = times.get(id).is_some_and(|times| *times > 1);
        if twice && named.0.is_some() {
            let why = "The provided topic name maps to an ID that was already supplied.";
            results.push(result(Some(name.clone()), *id, ErrorCode::InvalidRequest, why));
        }
        !twice
    });
}

fn result(name: Option<TopicName>, id: TopicId, code: ErrorCode, why: &str) -> DeletableTopicResult {
    DeletableTopicResult::default().with_name(name).with_topic_id(id.0).with_error_code(code.code()).with_error_message(Some(text(why)))
}

fn failed(name: Option<TopicName>, id: TopicId, error: &AdminError) -> DeletableTopicResult {
    if let AdminError::Storage(why) = error {
        tracing::error!(topic = %id, error = why, "cannot delete a topic");
    }
    result(name, id, ErrorCode::from(error), &error.to_string())
}

#[cfg(test)]
mod tests {
    use super::{super::admin_tests::*, *};
    use kafka_protocol::messages::delete_topics_request::DeleteTopicState;

    fn state(name: Option<&str>, id: TopicId) -> DeleteTopicState {
        DeleteTopicState::default().with_name(name.map(|name| TopicName(text(name)))).with_topic_id(id.0)
    }

    fn by_names(names: &[&str]) -> DeleteTopicsRequest {
        DeleteTopicsRequest::default().with_topic_names(names.iter().map(|name| TopicName(text(*name))).collect())
    }

    fn ask(cluster: &Cluster, version: i16, asked: &DeleteTopicsRequest) -> Vec<(Option<String>, i16)> {
        let response = answer(cluster, true, version, asked);
        survives(&response, version);
        response.responses.iter().map(|one| (one.name.as_ref().map(|name| name.to_string()), one.error_code)).collect()
    }

    fn named(name: &str, error: ErrorCode) -> (Option<String>, i16) {
        (Some(name.to_owned()), error.code())
    }

    #[test]
    fn topics_are_deleted_by_name_in_every_version() {
        for version in API.versions.clone() {
            let cluster = cluster(&[]);
            ["a", "b", "c"].iter().for_each(|name| _ = create_topic(&cluster, name, 1));
            let asked = if version < 6 {
                by_names(&["a", "x", "b", "b"])
            } else {
                let one = |name| state(Some(name), TopicId::ZERO);
                DeleteTopicsRequest::default().with_topics(vec![one("a"), one("x"), one("b"), one("b")])
            };
            let expected =
                [named("x", ErrorCode::UnknownTopicOrPartition), named("b", ErrorCode::InvalidRequest), named("a", ErrorCode::None)];
            assert_eq!(ask(&cluster, version, &asked), expected);
            let left: Vec<String> = cluster.image().topics().map(|topic| topic.name.to_string()).collect();
            assert_eq!(left, ["b", "c"]);
        }
    }

    #[test]
    fn topics_are_deleted_by_id() {
        let cluster = cluster(&[]);
        let (a, b, c) = (create_topic(&cluster, "a", 1).id, create_topic(&cluster, "b", 1).id, create_topic(&cluster, "c", 1).id);
        let unknown = TopicId(uuid::Uuid::from_u128(3));
        let topics = vec![
            state(None, a),
            state(None, unknown),
            state(Some("b"), b),
            state(None, TopicId::ZERO),
            state(None, c),
            state(Some("c"), TopicId::ZERO),
        ];
        let expected = [
            (None, ErrorCode::UnknownTopicId.code()),
            named("b", ErrorCode::InvalidRequest),
            (None, ErrorCode::InvalidRequest.code()),
            named("c", ErrorCode::InvalidRequest),
            named("a", ErrorCode::None),
        ];
        assert_eq!(ask(&cluster, 6, &DeleteTopicsRequest::default().with_topics(topics)), expected);
        assert_eq!(cluster.image().topics().len(), 2);
        let twice = DeleteTopicsRequest::default().with_topics(vec![state(None, b), state(None, b)]);
        assert_eq!(ask(&cluster, 6, &twice), [(None, ErrorCode::InvalidRequest.code())]);
    }

    #[test]
    fn deletion_can_be_turned_off() {
        let cluster = cluster(&[]);
        create_topic(&cluster, "a", 1);
        let code = |version: i16| answer(&cluster, false, version, &by_names(&["a"])).responses[0].error_code;
        assert_eq!((code(2), code(3)), (ErrorCode::InvalidRequest.code(), ErrorCode::TopicDeletionDisabled.code()));
        assert_eq!(cluster.image().topics().len(), 1);
    }
}

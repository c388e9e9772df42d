//! DeleteGroups (key 42), versions 0 to 2; 2 is flexible.
//!
//! - Each group by itself: one with members is NON_EMPTY_GROUP, one that isn't there GROUP_ID_NOT_FOUND. Its offsets go with it.

use super::{Api, Body, Context, FrameMax, Request, convert::first_error, coordinated::name};
use crate::{
    codec::shape::{Kind, Shape, TEXT, always},
    coordinator::Outcome,
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{DeleteGroupsRequest, DeleteGroupsResponse, GroupId, delete_groups_response::DeletableGroupResult};
use std::{collections::HashSet, sync::Arc};

pub const API: Api = Api {
    key: 42,
    name: "DeleteGroups",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 2,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Array(&TEXT))])),
    run,
    note: "",
};

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let mut asked: DeleteGroupsRequest = request.decode()?;
    // Each group once, as Kafka has it.
    let mut seen = HashSet::new();
    asked.groups_names.retain(|id| seen.insert(id.clone()));
    let delete = |id: &GroupId| {
        let group = name(id);
        context.groups.decide(&group, |groups, _| groups.decide_delete_group(&group))
    };
    let outcomes: Vec<Result<Outcome<ErrorCode>, ErrorCode>> = asked.groups_names.iter().map(delete).collect();
    if outcomes.iter().flatten().all(|outcome| outcome.committing.is_none()) {
        let errors = outcomes.into_iter().map(|outcome| outcome.map_or_else(|error| error, |outcome| outcome.reply)).collect();
        let (response, error) = respond(&asked, errors);
        return request.ready(&response, error);
    }
    Ok(Answer::Later(Box::pin(async move {
        let mut errors = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            errors.push(match outcome {
                Ok(Outcome { reply, committing: Some(committing) }) => committing.wait().await.err().unwrap_or(reply),
                Ok(Outcome { reply, committing: None }) => reply,
                Err(error) => error,
            });
        }
        let (response, error) = respond(&asked, errors);
        request.reply(&response, error)
    })))
}

fn respond(asked: &DeleteGroupsRequest, errors: Vec<ErrorCode>) -> (DeleteGroupsResponse, ErrorCode) {
    let result =
        |(id, error): (&GroupId, &ErrorCode)| DeletableGroupResult::default().with_group_id(id.clone()).with_error_code(error.code());
    let results = asked.groups_names.iter().zip(&errors).map(result).collect();
    (DeleteGroupsResponse::default().with_results(results), first_error(errors.iter().map(|error| error.code())))
}

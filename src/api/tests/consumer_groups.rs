//! The APIs of consumer groups (KIP-848): their shapes, a group's life in both versions, and answers that are held back.

use super::{
    groups::{Served, commit, gid, read},
    shape_holds, text, topic,
};
use crate::{
    api::{
        consumer_group_describe, consumer_group_heartbeat, delete_groups, describe_groups, find_coordinator, heartbeat, list_groups,
        offset_commit, offset_fetch,
    },
    cluster::{ConfigChange, GroupChange, NewTopic},
    codec::Reply,
    net::{Answer, Refusal},
    types::ErrorCode,
};
use kafka_protocol::messages::{
    ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, DeleteGroupsRequest,
    DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest, ListGroupsRequest, OffsetFetchRequest,
    consumer_group_heartbeat_request::TopicPartitions,
};
use std::{future::Future, pin::Pin, task::Poll};

fn beat(member: &str, epoch: i32) -> ConsumerGroupHeartbeatRequest {
    ConsumerGroupHeartbeatRequest::default()
        .with_group_id(gid("g"))
        .with_member_id(text(member))
        .with_member_epoch(epoch)
        .with_rebalance_timeout_ms(-1)
        .with_subscribed_topic_names(None)
        .with_topic_partitions(None)
}

fn join(member: &str) -> ConsumerGroupHeartbeatRequest {
    beat(member, 0)
        .with_rebalance_timeout_ms(60_000)
        .with_subscribed_topic_names(Some(vec![topic("t")]))
        .with_topic_partitions(Some(vec![]))
}

#[test]
fn shapes() {
    shape_holds(&consumer_group_heartbeat::API, |v| {
        let owned = TopicPartitions::default().with_topic_id(uuid::Uuid::from_u128(7)).with_partitions(vec![1, 2]);
        let request = join("m").with_instance_id(Some(text("i"))).with_rack_id(Some(text("r"))).with_server_assignor(Some(text("range")));
        let request = request.with_topic_partitions(Some(vec![owned.clone(), owned]));
        if v >= 1 { request.with_subscribed_topic_regex(Some(text("t.*"))) } else { request }
    });
    shape_holds(&consumer_group_describe::API, |_| {
        ConsumerGroupDescribeRequest::default().with_group_ids(vec![gid("a"), gid("b")]).with_include_authorized_operations(true)
    });
}

async fn served() -> Served {
    let served = Served::new();
    served.ask(&find_coordinator::API, 0, &FindCoordinatorRequest::default().with_key(text("g"))).await;
    served
}

async fn ask(served: &Served, v: i16, request: &ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
    served.ask(&consumer_group_heartbeat::API, v, request).await
}

fn partitions(told: &ConsumerGroupHeartbeatResponse) -> Option<Vec<i32>> {
    Some(told.assignment.as_ref()?.topic_partitions.iter().flat_map(|topic| topic.partitions.clone()).collect())
}

#[tokio::test]
async fn a_consumer_group_lives_and_ends_in_every_version() {
    let served = served().await;
    for v in 0..=1 {
        let joined = ask(&served, v, &join(if v == 0 { "" } else { "own" })).await;
        assert_eq!((joined.error_code, partitions(&joined)), (0, Some(vec![0])), "{joined:?}");
        let (member, epoch) = (joined.member_id.clone().unwrap(), joined.member_epoch);
        assert_eq!(&*member == "own", v == 1);
        let again = ask(&served, v, &beat(&member, epoch)).await;
        assert_eq!((again.error_code, again.member_epoch, partitions(&again)), (0, epoch, None));
        let ahead = ask(&served, v, &beat(&member, epoch + 5)).await;
        assert_eq!(ahead.error_code, ErrorCode::FencedMemberEpoch.code());
        assert!(ahead.error_message.unwrap().contains("greater member epoch"));

        offsets_want_the_epoch(&served, &member, epoch).await;
        tools_see_it(&served, v, &member).await;
        let classic = HeartbeatRequest::default().with_group_id(gid("g")).with_member_id(member.clone()).with_generation_id(epoch);
        assert_eq!(served.ask(&heartbeat::API, 4, &classic).await.error_code, ErrorCode::UnknownMemberId.code());
        let delete = DeleteGroupsRequest::default().with_groups_names(vec![gid("g")]);
        assert_eq!(served.ask(&delete_groups::API, 2, &delete).await.results[0].error_code, ErrorCode::NonEmptyGroup.code());
        let left = ask(&served, v, &beat(&member, -1)).await;
        assert_eq!((left.error_code, left.member_epoch), (0, -1));
        assert_eq!(served.ask(&delete_groups::API, 2, &delete).await.results[0].error_code, 0);
        let gone = ask(&served, v, &beat(&member, epoch)).await;
        assert_eq!(gone.error_code, ErrorCode::GroupIdNotFound.code());
    }
}

async fn offsets_want_the_epoch(served: &Served, member: &str, epoch: i32) {
    use kafka_protocol::messages::offset_fetch_request::{OffsetFetchRequestGroup, OffsetFetchRequestTopics};
    let code = async |epoch| {
        let committed = served.ask(&offset_commit::API, 9, &commit(9, member, epoch)).await;
        committed.topics[0].partitions[0].error_code
    };
    assert_eq!(code(epoch).await, 0);
    assert_eq!(code(epoch + 1).await, ErrorCode::StaleMemberEpoch.code());
    let old = served.ask(&offset_commit::API, 8, &commit(8, member, epoch)).await;
    assert_eq!(old.topics[0].partitions[0].error_code, ErrorCode::UnsupportedVersion.code());
    let fetch = async |member: Option<&str>, epoch| {
        let topics = vec![OffsetFetchRequestTopics::default().with_name(topic("t")).with_partition_indexes(vec![0])];
        let group = OffsetFetchRequestGroup::default().with_group_id(gid("g")).with_topics(Some(topics));
        let group = group.with_member_id(member.map(text)).with_member_epoch(epoch);
        let answer = served.ask(&offset_fetch::API, 9, &OffsetFetchRequest::default().with_groups(vec![group])).await;
        answer.groups[0].error_code
    };
    assert_eq!(fetch(Some(member), epoch).await, 0);
    assert_eq!(fetch(None, -1).await, 0, "a tool");
    assert_eq!(fetch(Some(member), epoch + 1).await, ErrorCode::StaleMemberEpoch.code());
    assert_eq!(fetch(Some("nobody"), epoch).await, ErrorCode::UnknownMemberId.code());
}

async fn tools_see_it(served: &Served, v: i16, member: &str) {
    let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![gid("g"), gid("nowhere"), gid("")]);
    let described = served.ask(&consumer_group_describe::API, v, &request.with_include_authorized_operations(true)).await;
    let codes: Vec<_> = described.groups.iter().map(|group| group.error_code).collect();
    assert_eq!(codes, [0, ErrorCode::GroupIdNotFound.code(), ErrorCode::InvalidGroupId.code()]);
    let g = &described.groups[0];
    assert_eq!((&*g.group_state, &*g.assignor_name, g.authorized_operations), ("Stable", "uniform", 3_400));
    let found = &g.members[0];
    assert_eq!((&*found.member_id, &*found.client_id, &*found.client_host), (member, "c", "/10.1.2.3"));
    assert_eq!(found.member_type, if v >= 1 { 1 } else { -1 });
    let assigned = &found.assignment.topic_partitions[0];
    assert_eq!((assigned.topic_name.as_str(), &assigned.partitions[..]), ("t", &[0][..]));
    assert_eq!(found.target_assignment, found.assignment);

    let classic = served.ask(&describe_groups::API, 6, &DescribeGroupsRequest::default().with_groups(vec![gid("g")])).await;
    let told = classic.groups[0].error_message.as_deref();
    assert_eq!((classic.groups[0].error_code, told), (ErrorCode::GroupIdNotFound.code(), Some("Group g is not a classic group.")));
    let list = async |kind: &str| {
        let listed = served.ask(&list_groups::API, 5, &ListGroupsRequest::default().with_types_filter(vec![text(kind)])).await;
        listed.groups.iter().map(|group| (group.group_state.to_string(), group.group_type.to_string())).collect::<Vec<_>>()
    };
    assert_eq!(list("Consumer").await, [("Stable".to_owned(), "consumer".to_owned())]);
    assert_eq!(list("classic").await, []);
}

/// Whether an answer is there by now.
async fn is_there(answer: &mut Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send>>) -> Option<Reply> {
    std::future::poll_fn(|context| match answer.as_mut().poll(context) {
        Poll::Ready(reply) => Poll::Ready(Some(reply.unwrap())),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn an_answer_without_news_is_held_back_until_there_is_some_or_somebody_waits_behind_it() {
    let served = served().await;
    served.context.cluster.create_topics(&[NewTopic { partitions: 2, ..NewTopic::with_defaults("two") }], false).remove(0).unwrap();
    served.context.groups.learn(&|| served.context.image());
    let join = |member: &str| join(member).with_subscribed_topic_names(Some(vec![topic("two")]));
    let first = ask(&served, 1, &join("first")).await;
    assert_eq!(partitions(&first), Some(vec![0, 1]));
    let Answer::Held(mut answer, hold) = served.send(&consumer_group_heartbeat::API, 1, &beat("first", first.member_epoch)) else {
        panic!("answered at once")
    };
    assert!(is_there(&mut answer).await.is_none());
    // Another request comes.
    hold.interrupt();
    let told = read::<ConsumerGroupHeartbeatRequest>(&consumer_group_heartbeat::API, 1, is_there(&mut answer).await.unwrap());
    assert_eq!((told.error_code, partitions(&told)), (0, None));
    // Another member comes: the first one must let go of a partition, and the second is answered when it has.
    let Answer::Held(mut answer, _hold) = served.send(&consumer_group_heartbeat::API, 1, &beat("first", told.member_epoch)) else {
        panic!("answered at once")
    };
    let Answer::Held(mut joined, _joining) = served.send(&consumer_group_heartbeat::API, 1, &join("second")) else {
        panic!("answered without partitions")
    };
    let told = read::<ConsumerGroupHeartbeatRequest>(&consumer_group_heartbeat::API, 1, is_there(&mut answer).await.unwrap());
    let mine = partitions(&told).unwrap();
    assert_eq!(mine.len(), 1);
    assert!(is_there(&mut joined).await.is_none(), "the partition is not free yet");
    let id = told.assignment.unwrap().topic_partitions[0].topic_id;
    let owned = vec![TopicPartitions::default().with_topic_id(id).with_partitions(mine)];
    ask(&served, 1, &beat("first", told.member_epoch).with_topic_partitions(Some(owned))).await;
    let told = read::<ConsumerGroupHeartbeatRequest>(&consumer_group_heartbeat::API, 1, is_there(&mut joined).await.unwrap());
    assert_eq!(partitions(&told).map(|all| all.len()), Some(1));
}

#[tokio::test]
async fn a_groups_own_configs_count() {
    let served = served().await;
    let change = ConfigChange::Replace(vec![("consumer.heartbeat.interval.ms".to_owned(), "7000".to_owned())]);
    served.context.cluster.alter_groups(&[GroupChange { group: "g".to_owned(), change }], false).remove(0).unwrap();
    served.context.groups.learn(&|| served.context.image());
    let joined = ask(&served, 1, &join("m")).await;
    let left = ask(&served, 1, &beat("m", -1)).await;
    assert_eq!((joined.error_code, left.error_code), (0, 0));
    assert!(served.context.groups.query("g", |groups| groups.settings_of("g").consumer_heartbeat_interval_ms == Some(7_000)).unwrap());
}

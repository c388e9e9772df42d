//! ListTransactions (key 66), versions 0 to 2.
//!
//! - The transactional ids of this broker, by state and producer id, from version 1 on by how long their transaction is open, from 2 on by a
//!   pattern of their ids (RE2's language, KIP-1152): one that is no pattern is INVALID_REGULAR_EXPRESSION.
//! - State names that aren't any are told, and select nothing.

use super::{Api, Body, Context, FrameMax, Request, convert::text};
use crate::{
    codec::shape::{I64, Kind, Shape, TEXT, always, since},
    net::{Answer, Refusal},
    txn::{Filter, Listed, State},
    types::{ErrorCode, ProducerId},
};
use kafka_protocol::{
    messages::{self, ListTransactionsRequest, ListTransactionsResponse, TransactionalId, list_transactions_response::TransactionState},
    protocol::StrBytes,
};
use regex::{Regex, RegexBuilder};
use std::{collections::BTreeSet, sync::Arc};

pub const API: Api = Api {
    key: 66,
    name: "ListTransactions",
    versions: 0..=2,
    advertised_min: 0,
    flexible_since: 0,
    frame_max: FrameMax::Control,
    body: Body::Shaped(Shape(&[always(Kind::Array(&TEXT)), always(Kind::Array(&I64)), since(1, I64), since(2, TEXT)])),
    run,
    note: "by state, producer, duration and pattern",
};

/// What a compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 1 << 20;

fn run(context: &Arc<Context>, request: Request) -> Result<Answer, Refusal> {
    let asked: ListTransactionsRequest = request.decode()?;
    let (response, error) = list(context, &asked);
    request.ready(&response, error)
}

fn list(context: &Context, asked: &ListTransactionsRequest) -> (ListTransactionsResponse, ErrorCode) {
    let response = ListTransactionsResponse::default();
    let refused = |error: ErrorCode| (ListTransactionsResponse::default().with_error_code(error.code()), error);
    let pattern = match pattern(asked.transactional_id_pattern.as_deref()) {
        Ok(pattern) => pattern,
        Err(error) => return refused(error),
    };
    let fits = |id: &str| pattern.as_ref().is_none_or(|pattern| pattern.is_match(id));
    let states: Vec<State> = asked.state_filters.iter().filter_map(|name| State::from_name(name)).collect();
    // Each once.
    let unknown: BTreeSet<StrBytes> = asked.state_filters.iter().filter(|name| State::from_name(name).is_none()).cloned().collect();
    let unknown: Vec<StrBytes> = unknown.into_iter().collect();
    let filter = Filter {
        producer_ids: asked.producer_id_filters.iter().map(|id| ProducerId(id.0)).collect(),
        no_known_state: states.is_empty() && !unknown.is_empty(),
        states,
        longer_than_ms: Some(asked.duration_filter).filter(|span| *span >= 0),
        id_fits: Some(&fits),
    };
    match context.transactions.list(&filter) {
        Ok(listed) => {
            let states = listed.iter().map(state).collect();
            (response.with_unknown_state_filters(unknown).with_transaction_states(states), ErrorCode::None)
        }
        Err(error) => refused(error),
    }
}

/// The whole id has to fit.
fn pattern(text: Option<&str>) -> Result<Option<Regex>, ErrorCode> {
    let Some(text) = text.filter(|text| !text.is_empty()) else { return Ok(None) };
    let compile = |text: &str| {
        let built = RegexBuilder::new(text).size_limit(PATTERN_BYTES_MAX).dfa_size_limit(PATTERN_BYTES_MAX).build();
        built.map_err(|_| ErrorCode::InvalidRegularExpression)
    };
    // By itself first: it must not close what is put around it.
    compile(text)?;
    compile(&format!("^(?:{text})$")).map(Some)
}

fn state(listed: &Listed) -> TransactionState {
    TransactionState::default()
        .with_transactional_id(TransactionalId(text(&*listed.id)))
        .with_producer_id(messages::ProducerId(listed.producer_id.0))
        .with_transaction_state(text(listed.state.name()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_of_the_whole_id() {
        let fits = |text, id| pattern(Some(text)).unwrap().unwrap().is_match(id);
        assert!(fits("a.*", "abc") && !fits("b", "abc") && fits("a|abc", "abc") && !fits("a|b", "abc"));
        assert!(pattern(None).unwrap().is_none() && pattern(Some("")).unwrap().is_none());
        assert_eq!(pattern(Some("(")).err(), Some(ErrorCode::InvalidRegularExpression));
        assert_eq!(pattern(Some("a{1000}{1000}")).err(), Some(ErrorCode::InvalidRegularExpression), "too large");
        assert_eq!(pattern(Some(")|(")).err(), Some(ErrorCode::InvalidRegularExpression), "no way out of the group");
    }
}

//! A request on its way to its handler, and the ways to answer it.

use super::Api;
use crate::{
    codec::{Reply, RequestHeader, reply::ReplyHeader},
    net::{Answer, ConnectionInfo, Refusal},
    types::ErrorCode,
};
use bytes::Bytes;
use kafka_protocol::protocol::{Decodable, Encodable};
use std::sync::Arc;

/// A frame whose header is read and whose body has been checked.
#[derive(Debug, Clone)]
pub struct Request {
    pub api: &'static Api,
    pub header: RequestHeader,
    pub body: Bytes,
    pub connection: Arc<ConnectionInfo>,
}

impl Request {
    pub fn version(&self) -> i16 {
        self.header.api_version
    }

    /// Decodes the body with the codec crate. Its shape has been walked: what can still be wrong is text that isn't UTF-8 or a null.
    pub fn decode<T: Decodable>(&self) -> Result<T, Refusal> {
        let mut body = self.body.clone();
        T::decode(&mut body, self.version()).map_err(|e| crate::codec::Malformed::Field(e.to_string()).into())
    }

    /// The header that goes before the answer. ApiVersions alone has the old one in every version.
    pub fn reply_header(&self) -> ReplyHeader {
        let tagged = self.header.flexible && self.api.key != super::api_versions::API.key;
        ReplyHeader { correlation_id: self.header.correlation_id, tagged }
    }

    /// Encodes an answer; `error` is the worst in it, for metrics.
    pub fn reply<T: Encodable>(&self, body: &T, error: ErrorCode) -> Result<Reply, Refusal> {
        Ok(Reply::encode(self.reply_header(), body, self.version(), error)?)
    }

    /// What the answer needs of the request, without its bytes.
    pub fn without_frame(mut self) -> Self {
        (self.body, self.header.client_id) = (Bytes::new(), None);
        self
    }

    /// An answer that is there.
    pub fn ready<T: Encodable>(&self, body: &T, error: ErrorCode) -> Result<Answer, Refusal> {
        self.reply(body, error).map(Answer::Ready)
    }
}

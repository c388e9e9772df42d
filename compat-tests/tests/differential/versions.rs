//! ApiVersions in every form, and frames that no version of anything knows.

use anyhow::{Context, ensure};
use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::{ApiKey, ApiVersionsRequest, ApiVersionsResponse, MetadataRequest, ProduceRequest};
use kafka_protocol::protocol::{Decodable, Message};

use crate::masks::Masked;
use crate::requests::text;
use crate::side::{Side, compare};

#[test]
fn api_versions() {
    compare(|side| {
        for version in ApiVersionsRequest::VERSIONS.min..=ApiVersionsRequest::VERSIONS.max {
            side.step("as clients ask", version, &client(version, "compat-tests", "1.0"))?;
        }
        for (name, release) in
            [("", "1"), ("a", ""), ("has space", "1"), ("-starts", "1"), ("ends-", "1"), ("ok.ok-1", "v1.0_x"), ("a", "1-")]
        {
            side.step(format!("software {name:?} {release:?}"), 3, &client(3, name, release))?;
        }
        Ok(())
    });
}

fn client(version: i16, name: &str, release: &str) -> ApiVersionsRequest {
    let request = ApiVersionsRequest::default();
    if version < 3 { request } else { request.with_client_software_name(text(name)).with_client_software_version(text(release)) }
}

/// An unknown version of ApiVersions is answered in version 0, whatever follows the header (KIP-511).
#[test]
fn unknown_api_versions() {
    compare(|side| {
        for version in [6, 99, i16::MAX] {
            for body in [&b""[..], b"\0", b"\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
                let mut frame = header(ApiKey::ApiVersions as i16, version, 77);
                frame.put_slice(body);
                let mut answer = side.frame(&frame)?.context("the connection is closed")?;
                ensure!(answer.get_i32() == 77, "another correlation id");
                let mut answer = ApiVersionsResponse::decode(&mut answer, 0)?;
                answer.mask();
                side.note(format!("version {version}, {} bytes", body.len()), format!("{answer:#?}"));
            }
        }
        side.frame_step("version -1", &header(ApiKey::ApiVersions as i16, -1, 1))
    });
}

#[test]
fn frames_that_close_the_connection() {
    compare(|side| {
        side.frame_step("no such API", &header(1_000, 0, 1))?;
        side.frame_step("a negative API", &header(-1, 0, 1))?;
        for version in [-1, MetadataRequest::VERSIONS.max + 1, 99] {
            side.frame_step(&format!("Metadata {version}"), &header(ApiKey::Metadata as i16, version, 1))?;
        }
        for version in 0..ProduceRequest::VERSIONS.min {
            side.frame_step(&format!("Produce {version}, which is advertised but not served"), &produce_before_3(version))?;
        }
        side.frame_step("Metadata without its body", &header(ApiKey::Metadata as i16, 9, 1))?;
        let mut lying = header(ApiKey::Metadata as i16, 1, 1);
        lying.put_i32(1_000);
        side.frame_step("an array longer than the frame", &lying)?;
        // An array of length -2 is left out: Kafka takes it for null, we for a lie.
        let mut long_name = header(ApiKey::Metadata as i16, 1, 1);
        long_name.put_i32(1);
        long_name.put_i16(i16::MAX);
        side.frame_step("a string longer than the frame", &long_name)?;
        let mut controller_only = header(52, 0, 1);
        controller_only.put_slice(&[0; 16]);
        side.frame_step("Vote, which is not for clients", &controller_only)?;
        side.frame_step("an empty frame", b"")?;
        side.frame_step("half a header", &header(3, 1, 1)[..6])
    });
}

/// Key, version, correlation id and client id; with the empty tagged fields of a flexible header if the version has one.
fn header(key: i16, version: i16, correlation_id: i32) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(correlation_id);
    frame.put_i16(1);
    frame.put_slice(b"c");
    let flexible = match ApiKey::try_from(key) {
        Ok(ApiKey::ApiVersions) => version >= 3,
        Ok(ApiKey::Metadata) => version >= 9,
        _ => false,
    };
    if flexible {
        frame.put_u8(0);
    }
    frame
}

/// acks, timeout and no topics.
fn produce_before_3(version: i16) -> BytesMut {
    let mut frame = header(ApiKey::Produce as i16, version, 1);
    frame.put_i16(1);
    frame.put_i32(1_000);
    frame.put_i32(0);
    frame
}

/// Answers leave in the order of the requests, and a connection may have many under way.
#[test]
fn a_pipeline_of_requests() {
    compare(|side: &mut Side| {
        let mut client = side.connect()?;
        let mut frames = BytesMut::new();
        for _ in 0..200 {
            let frame = client.encode(3, &self::client(3, "compat-tests", "1"))?;
            frames.put_i32(i32::try_from(frame.len())?);
            frames.put_slice(&frame);
        }
        client.send_bytes(&frames)?;
        for expected in 1..=200 {
            let mut answer = client.receive_frame()?.context("the connection is closed")?;
            ensure!(answer.get_i32() == expected, "an answer out of order");
        }
        client.finish_sending()?;
        client.expect_closed()
    });
}

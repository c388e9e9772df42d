//! DescribeCluster.

use kafka_protocol::messages::DescribeClusterRequest;
use kafka_protocol::protocol::Message;

use crate::side::compare;

#[test]
fn describe_cluster() {
    compare(|side| {
        for version in DescribeClusterRequest::VERSIONS.min..=DescribeClusterRequest::VERSIONS.max {
            let ask = DescribeClusterRequest::default();
            side.step("as clients ask", version, &ask)?;
            side.step("with operations", version, &ask.clone().with_include_cluster_authorized_operations(true))?;
            if version >= 1 {
                for endpoint_type in [2, 0, 3] {
                    side.step(format!("endpoints of type {endpoint_type}"), version, &ask.clone().with_endpoint_type(endpoint_type))?;
                }
            }
            if version >= 2 {
                side.step("with fenced brokers", version, &ask.with_include_fenced_brokers(true))?;
            }
        }
        Ok(())
    });
}

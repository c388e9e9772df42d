//! What may differ in the answers of the transaction APIs: chance, and the order of hash tables.

use kafka_protocol::messages::{
    AddOffsetsToTxnResponse, AddPartitionsToTxnResponse, DescribeProducersResponse, DescribeTransactionsResponse, EndTxnResponse,
    ListTransactionsResponse, ProducerId, TxnOffsetCommitResponse, WriteTxnMarkersResponse,
};

use crate::masks::{Masked, mask_message};

/// How many ids were given before, by whom, is chance.
fn mask_producer(id: &mut ProducerId) {
    if id.0 >= 0 {
        *id = ProducerId(1_000);
    }
}

impl Masked for AddPartitionsToTxnResponse {
    fn mask(&mut self) {
        for result in &mut self.results_by_transaction {
            for topic in &mut result.topic_results {
                topic.results_by_partition.sort_by_key(|partition| (partition.partition_index, partition.partition_error_code));
            }
            result.topic_results.sort_by(|a, b| a.name.cmp(&b.name));
        }
        self.results_by_transaction.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        for topic in &mut self.results_by_topic_v3_and_below {
            topic.results_by_partition.sort_by_key(|partition| (partition.partition_index, partition.partition_error_code));
        }
        self.results_by_topic_v3_and_below.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl Masked for AddOffsetsToTxnResponse {
    fn mask(&mut self) {}
}

impl Masked for EndTxnResponse {
    fn mask(&mut self) {
        mask_producer(&mut self.producer_id);
    }
}

impl Masked for WriteTxnMarkersResponse {
    fn mask(&mut self) {
        for marker in &mut self.markers {
            mask_producer(&mut marker.producer_id);
            for topic in &mut marker.topics {
                topic.partitions.sort_by_key(|partition| partition.partition_index);
            }
            marker.topics.sort_by(|a, b| a.name.cmp(&b.name));
        }
    }
}

impl Masked for TxnOffsetCommitResponse {
    fn mask(&mut self) {
        for topic in &mut self.topics {
            topic.partitions.sort_by_key(|partition| (partition.partition_index, partition.error_code));
        }
        self.topics.sort_by(|a, b| a.name.cmp(&b.name));
    }
}

impl Masked for DescribeProducersResponse {
    fn mask(&mut self) {
        for partition in self.topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
            mask_message(&mut partition.error_message);
            for producer in &mut partition.active_producers {
                mask_producer(&mut producer.producer_id);
                // A marker's is the time at which it was written.
                if producer.last_timestamp > crate::requests::THEN {
                    producer.last_timestamp = crate::requests::THEN + 1;
                }
            }
            partition.active_producers.sort_by_key(|producer| (producer.producer_epoch, producer.current_txn_start_offset));
        }
    }
}

impl Masked for DescribeTransactionsResponse {
    fn mask(&mut self) {
        for state in &mut self.transaction_states {
            mask_producer(&mut state.producer_id);
            if state.transaction_start_time_ms > 0 {
                state.transaction_start_time_ms = 1;
            }
            for topic in &mut state.topics {
                topic.partitions.sort_unstable();
            }
            state.topics.sort_by(|a, b| a.topic.cmp(&b.topic));
        }
        self.transaction_states.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
    }
}

impl Masked for ListTransactionsResponse {
    fn mask(&mut self) {
        for state in &mut self.transaction_states {
            mask_producer(&mut state.producer_id);
        }
        self.transaction_states.sort_by(|a, b| a.transactional_id.cmp(&b.transactional_id));
        self.unknown_state_filters.sort();
    }
}

"""librdkafka's exactly once: reads committed records of a topic, writes each to the same partition of another and commits its offsets in
the same transaction, however often its broker dies. Prints how many records it copied, and how many producers it took.

python copier.py copy BOOTSTRAP FROM TO GROUP
"""

import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

RECORDS_PER_TRANSACTION = 20
POLL_SECONDS = 0.5
CALL_SECONDS = 30


def abortable(producer, call, *args):
    """Calls, and again where that may help; an error that only aborting helps ends the attempt."""
    while True:
        try:
            return call(*args)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def is_done(consumer, topic, partitions):
    assigned = consumer.assignment()
    if len(assigned) != partitions:
        return False
    for place in consumer.position(assigned):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), timeout=CALL_SECONDS)
        if (place.offset if place.offset >= 0 else low) < high:
            return False
    return True


def attempt(bootstrap, source, target, group):
    """Copies until the end, with one consumer and one producer; the number of records."""
    copied = 0
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group + "-copier", "reconnect.backoff.max.ms": 200})
    try:
        abortable(producer, producer.init_transactions, CALL_SECONDS)
        partitions = len(consumer.list_topics(source, timeout=CALL_SECONDS).topics[source].partitions)
        consumer.subscribe([source])
        while True:
            records = [r for r in consumer.consume(RECORDS_PER_TRANSACTION, POLL_SECONDS) if r.error() is None]
            if not records:
                if is_done(consumer, source, partitions):
                    return copied
                continue
            producer.begin_transaction()
            for record in records:
                producer.produce(target, partition=record.partition(), key=record.key(), value=record.value())
            offsets = consumer.position(consumer.assignment())
            abortable(producer, producer.send_offsets_to_transaction, offsets, consumer.consumer_group_metadata(), CALL_SECONDS)
            abortable(producer, producer.commit_transaction, CALL_SECONDS)
            copied += len(records)
    finally:
        consumer.close()


def main(bootstrap, source, target, group):
    begun = 0
    while True:
        begun += 1
        try:
            print(attempt(bootstrap, source, target, group), begun)
            return
        except KafkaException as error:
            # A new producer fences the old one, and goes on where the group is.
            print(f"copier.py: {error}", file=sys.stderr)


if __name__ == "__main__":
    main(*sys.argv[2:])

"""librdkafka's exactly once: reads committed records of a topic, writes each to the same partition of another and commits its offsets in
the same transaction, however often its broker dies, until it has copied all of a topic that has so many records. Prints how many records
it copied, and how many producers it took. `hang` begins a transaction, prints its record's offset, and leaves it as a process does that is
killed.

python copier.py copy BOOTSTRAP FROM TO GROUP RECORDS
python copier.py hang BOOTSTRAP TOPIC TRANSACTIONAL_ID
"""

import os
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

# Of both clients. By default librdkafka starts over from its bootstrap servers when it has lost every broker; one that does in the middle of a
# transaction keeps waiting for the group's coordinator that it had before (2.16: the transaction's offsets are never sent).
COMMON = {"reconnect.backoff.max.ms": 200, "metadata.recovery.strategy": "none"}
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


def is_done(consumer, topic, partitions, wanted):
    assigned = consumer.assignment()
    if len(assigned) != partitions:
        return False
    total = 0
    for place in consumer.position(assigned):
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, place.partition), timeout=CALL_SECONDS)
        total += high
        if (place.offset if place.offset >= 0 else low) < high:
            return False
    return total >= wanted


def attempt(bootstrap, source, target, group, wanted):
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
            **COMMON,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": group + "-copier", **COMMON})
    try:
        abortable(producer, producer.init_transactions, CALL_SECONDS)
        partitions = len(consumer.list_topics(source, timeout=CALL_SECONDS).topics[source].partitions)
        consumer.subscribe([source])
        while True:
            records = [r for r in consumer.consume(RECORDS_PER_TRANSACTION, POLL_SECONDS) if r.error() is None]
            if not records:
                if is_done(consumer, source, partitions, wanted):
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


def hang(bootstrap, topic, transactional_id):
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id})
    abortable(producer, producer.init_transactions, CALL_SECONDS)
    producer.begin_transaction()
    offsets = []
    producer.produce(topic, partition=0, key="k", value="hangs", on_delivery=lambda error, message: offsets.append(message.offset()))
    producer.flush(CALL_SECONDS)
    print(offsets[0], flush=True)
    os._exit(0)


def copy(bootstrap, source, target, group, records):
    begun = 0
    while True:
        begun += 1
        try:
            print(attempt(bootstrap, source, target, group, int(records)), begun)
            return
        except KafkaException as error:
            # A new producer fences the old one, and goes on where the group is.
            print(f"copier.py: {error}", file=sys.stderr)


if __name__ == "__main__":
    {"copy": copy, "hang": hang}[sys.argv[1]](*sys.argv[2:])

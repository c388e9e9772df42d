"""confluent-kafka-python (librdkafka) as a command of the compat tests; the contract is in compat-tests/src/driver.rs.

`consume` joins no group: it assigns every partition itself and stops at the end offsets that it found when it started. `member` does.
"""

import base64
import json
import os
import sys
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_NOT_AVAILABLE, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

WAIT_SECONDS = 30


def decode(text):
    return None if text is None else base64.b64decode(text)


def encode(data):
    return None if data is None else base64.b64encode(data).decode()


def create(bootstrap, topic, partitions):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, num_partitions=int(partitions))]).values():
        future.result(WAIT_SECONDS)


def produce(bootstrap, topic, codec):
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec})
    failures = []

    def delivered(error, _message):
        if error is not None:
            failures.append(str(error))

    for line in sys.stdin:
        record = json.loads(line)
        optional = {}
        if record["partition"] is not None:
            optional["partition"] = record["partition"]
        if record["timestamp"] is not None:
            optional["timestamp"] = record["timestamp"]
        producer.produce(
            topic,
            key=decode(record["key"]),
            value=decode(record["value"]),
            headers=[(name, decode(value)) for name, value in record["headers"]],
            on_delivery=delivered,
            **optional,
        )
        producer.poll(0)
    left = producer.flush(WAIT_SECONDS)
    if failures or left:
        sys.exit(f"{len(failures)} records failed ({failures[:3]}), {left} still waiting")


def consume(bootstrap, topic):
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "never-joined", "enable.auto.commit": False})
    found = consumer.list_topics(topic, WAIT_SECONDS).topics[topic]
    if found.error is not None:
        sys.exit(str(found.error))
    ends = {}
    for partition in found.partitions:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), WAIT_SECONDS)
        if high > low:
            ends[partition] = high
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in ends])
    deadline = time.monotonic() + WAIT_SECONDS
    while ends:
        if time.monotonic() > deadline:
            sys.exit(f"partitions with their end offsets still to come: {ends}")
        message = consumer.poll(1)
        if message is None:
            continue
        if message.error() is not None:
            # A broker without the group APIs: librdkafka says so once, and reads on.
            if message.error().code() == KafkaError._UNSUPPORTED_FEATURE:
                continue
            sys.exit(str(message.error()))
        kind, timestamp = message.timestamp()
        record = {
            "partition": message.partition(),
            "offset": message.offset(),
            "timestamp": None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
            "key": encode(message.key()),
            "value": encode(message.value()),
            "headers": [[name, encode(value)] for name, value in message.headers() or []],
        }
        print(json.dumps(record))
        if message.offset() + 1 >= ends.get(message.partition(), 0):
            ends.pop(message.partition(), None)
    consumer.close()


def say(event):
    print(json.dumps(event), flush=True)


def member(bootstrap, topic, group, strategy, instance):
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    if strategy == "consumer":
        # KIP-848: timeouts and assignors are the broker's.
        config["group.protocol"] = "consumer"
    else:
        interval = os.environ.get("MEMBER_HEARTBEAT_MS")
        timeouts = {"heartbeat.interval.ms": int(interval)} if interval else {"session.timeout.ms": 6000, "heartbeat.interval.ms": 500}
        config |= {"partition.assignment.strategy": strategy} | timeouts
    if instance != "-":
        config["group.instance.id"] = instance
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    consumer = Consumer(config)
    owns = set()

    def change(how):
        def changed(_consumer, partitions):
            how(found.partition for found in partitions)
            say({"owns": sorted(owns)})

        return changed

    gained, gone = change(owns.update), change(owns.difference_update)
    consumer.subscribe([topic], on_assign=gained, on_revoke=gone, on_lost=gone)
    while not ended.is_set():
        message = consumer.poll(0.1)
        if message is None:
            continue
        if message.error() is not None:
            # Lost connections and the like: librdkafka goes on by itself.
            say({"error": str(message.error())})
            continue
        say({"record": [message.partition(), message.offset()]})
        try:
            consumer.commit(message=message, asynchronous=False)
        except KafkaException as error:
            # A rebalance came first: whoever has the partition now reads the record again.
            say({"error": str(error)})
    consumer.close()
    say({"closed": True})


if __name__ == "__main__":
    {"create": create, "produce": produce, "consume": consume, "member": member}[sys.argv[1]](*sys.argv[2:])

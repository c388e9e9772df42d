"""A librdkafka producer, idempotent, that outlives restarts of its broker: every line KEY TAB VALUE of its input is a record.

It prints the number of acknowledged records at its end and fails if one was given up. It never looks into a line.

python lines.py BOOTSTRAP TOPIC
"""

import sys

from confluent_kafka import KafkaError, Producer

TEN_MINUTES_MS = 600_000
POLL_SECONDS = 0.1


def main(bootstrap, topic):
    acknowledged = 0
    failures = []

    def delivered(error, _message):
        nonlocal acknowledged
        if error is None:
            acknowledged += 1
        else:
            failures.append(str(error))

    def on_error(error):
        if error.fatal():
            failures.append(str(error))
        elif error.code() != KafkaError._ALL_BROKERS_DOWN:
            print(f"lines.py: {error}", file=sys.stderr)

    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": TEN_MINUTES_MS,
            "reconnect.backoff.max.ms": 500,
            "error_cb": on_error,
        }
    )
    for line in sys.stdin.buffer:
        key, value = line.rstrip(b"\n").split(b"\t", 1)
        while True:
            try:
                producer.produce(topic, key=key, value=value, on_delivery=delivered)
                break
            except BufferError:
                producer.poll(POLL_SECONDS)
        producer.poll(0)
    while len(producer) and not failures:
        producer.poll(POLL_SECONDS)
    print(acknowledged)
    if failures:
        sys.exit(f"lines.py: {len(failures)} failures: {failures[:3]}")


main(*sys.argv[1:])

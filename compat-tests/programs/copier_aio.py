"""aiokafka's exactly once: reads committed records of a topic, writes each to the same partition of another and commits its offsets in the
same transaction, however often its broker dies, until it has copied all of a topic that has so many records. Prints how many records it
copied, and how many producers it took.

python copier_aio.py copy BOOTSTRAP FROM TO GROUP RECORDS
"""

import asyncio
import logging
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError

RECORDS_PER_TRANSACTION = 20
POLL_MS = 500
CALL_SECONDS = 30
# Between two attempts: there is no broker to talk to for a moment.
PAUSE_SECONDS = 0.2


async def is_done(consumer, wanted):
    assigned = consumer.assignment()
    if not assigned:
        return False
    ends = await consumer.end_offsets(assigned)
    behind = [place for place, end in ends.items() if await consumer.position(place) < end]
    return not behind and sum(ends.values()) >= wanted


async def attempt(bootstrap, source, target, group, wanted, copied):
    """Copies until the end, with one consumer and one producer."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=group + "-copier")
    consumer = AIOKafkaConsumer(
        source,
        bootstrap_servers=bootstrap,
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
    )
    try:
        # What the producer before left open is aborted before offsets are read.
        await producer.start()
        await consumer.start()
        while True:
            records = await consumer.getmany(timeout_ms=POLL_MS, max_records=RECORDS_PER_TRANSACTION)
            if not records:
                if await is_done(consumer, wanted):
                    return
                continue
            async with producer.transaction():
                for place, some in records.items():
                    for record in some:
                        await producer.send(target, record.value, key=record.key, partition=place.partition)
                offsets = {place: some[-1].offset + 1 for place, some in records.items()}
                await producer.send_offsets_to_transaction(offsets, group)
            copied.append(sum(len(some) for some in records.values()))
    finally:
        for client in (consumer, producer):
            try:
                await asyncio.wait_for(client.stop(), CALL_SECONDS)
            except (KafkaError, asyncio.TimeoutError) as error:
                print(f"copier_aio.py: stop: {error!r}", file=sys.stderr)


async def copy(bootstrap, source, target, group, records):
    copied = []
    begun = 0
    while True:
        begun += 1
        try:
            await attempt(bootstrap, source, target, group, int(records), copied)
            print(sum(copied), begun)
            return
        except KafkaError as error:
            # A new producer fences the old one, and goes on where the group is.
            print(f"copier_aio.py: {error!r}", file=sys.stderr)
            await asyncio.sleep(PAUSE_SECONDS)


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(copy(*sys.argv[2:]))

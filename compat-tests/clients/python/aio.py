"""aiokafka as a member of groups; the contract is in compat-tests/src/driver.rs.

Only `member`: it joins by the classic protocol, and all its assignors are eager.
"""

import asyncio
import json
import sys

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.errors import KafkaError

def say(event):
    print(json.dumps(event), flush=True)


class Telling(ConsumerRebalanceListener):
    def on_partitions_revoked(self, revoked):
        say({"owns": []})

    def on_partitions_assigned(self, assigned):
        say({"owns": sorted(found.partition for found in assigned)})


async def member(bootstrap, topic, group, _strategy, instance):
    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        group_instance_id=None if instance == "-" else instance,
        partition_assignment_strategy=[RangePartitionAssignor],
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    consumer.subscribe([topic], listener=Telling())
    await consumer.start()
    try:
        while not ended.done():
            for at, records in (await consumer.getmany(timeout_ms=100)).items():
                for record in records:
                    say({"record": [record.partition, record.offset]})
                try:
                    await consumer.commit({at: records[-1].offset + 1})
                except KafkaError as error:
                    # A rebalance came first: whoever has the partition now reads the records again.
                    say({"error": str(error)})
    finally:
        await consumer.stop()
    say({"closed": True})


if __name__ == "__main__":
    asyncio.run({"member": member}[sys.argv[1]](*sys.argv[2:]))

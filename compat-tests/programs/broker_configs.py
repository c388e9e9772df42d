"""confluent-kafka-python's AdminClient on a broker's configs: sets one, or prints what each source says of one.

python broker_configs.py set BOOTSTRAP BROKER KEY VALUE
python broker_configs.py describe BOOTSTRAP BROKER KEY
"""

import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource


def main(what, bootstrap, broker, key, *value):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    try:
        if what == "set":
            entry = ConfigEntry(key, *value, incremental_operation=AlterConfigOpType.SET)
            resource = ConfigResource(ConfigResource.Type.BROKER, broker, incremental_configs=[entry])
            for future in admin.incremental_alter_configs([resource]).values():
                future.result()
            print("done")
            return
        for future in admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, broker)]).values():
            entry = future.result()[key]
            synonyms = ", ".join(f"{one.name}={one.value} {one.source}" for one in entry.synonyms.values())
            print(f"{entry.name}={entry.value} {entry.source} read-only={entry.is_read_only} ({synonyms})")
    except KafkaException as error:
        print(f"{error.args[0].name()}: {error.args[0].str()}")


if __name__ == "__main__":
    main(*sys.argv[1:])

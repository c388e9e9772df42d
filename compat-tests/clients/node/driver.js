// kafkajs as a command of the compat tests; the contract is in compat-tests/src/driver.rs.
//
// It creates, produces and is a member of groups. kafkajs has no consumer without a group, so there is no `consume` here.
'use strict'

const { Kafka, CompressionTypes, CompressionCodecs, AssignerProtocol, logLevel } = require('kafkajs')

// The most bytes of keys and values that go into one send: kafkajs makes one batch of all that a send has for a partition.
const SEND_BYTES = 300_000

const decode = (text) => (text === null ? null : Buffer.from(text, 'base64'))

const kafka = (bootstrap, level = logLevel.ERROR) => new Kafka({ clientId: 'compat-tests', brokers: [bootstrap], logLevel: level })

// gzip is built in; the others are what a kafkajs application registers by itself.
async function registerCodecs() {
  CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
  const Lz4 = require('@2l/kafkajs-lz4')
  CompressionCodecs[CompressionTypes.LZ4] = new Lz4().codec
  const zstd = require('@bokuweb/zstd-wasm')
  await zstd.init()
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
  })
}

const TYPES = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

async function create(bootstrap, topic, partitions) {
  const admin = kafka(bootstrap).admin()
  await admin.connect()
  try {
    const made = await admin.createTopics({ waitForLeaders: true, topics: [{ topic, numPartitions: Number(partitions) }] })
    if (!made) throw new Error(`${topic} was there already`)
  } catch (error) {
    // Apache Kafka answers before its Metadata knows the topic, and kafkajs takes that for a failure when it waits for leaders.
    if (error.type !== 'UNKNOWN_TOPIC_OR_PARTITION') throw error
  } finally {
    await admin.disconnect()
  }
}

// kafkajs takes headers as an object: a name that comes more than once has an array of its values.
function headersOf(pairs) {
  const headers = {}
  for (const [name, value] of pairs) {
    if (name in headers) headers[name].push(decode(value))
    else headers[name] = [decode(value)]
  }
  return Object.fromEntries(Object.entries(headers).map(([name, values]) => [name, values.length === 1 ? values[0] : values]))
}

function messageOf(line) {
  const record = JSON.parse(line)
  const message = { key: decode(record.key), value: decode(record.value), headers: headersOf(record.headers) }
  if (record.partition !== null) message.partition = record.partition
  if (record.timestamp !== null) message.timestamp = String(record.timestamp)
  return message
}

async function produce(bootstrap, topic, codec) {
  await registerCodecs()
  const producer = kafka(bootstrap).producer()
  await producer.connect()
  try {
    let messages = []
    let bytes = 0
    const flush = async () => {
      if (messages.length > 0) await producer.send({ topic, compression: TYPES[codec], messages })
      messages = []
      bytes = 0
    }
    for await (const line of require('node:readline').createInterface({ input: process.stdin })) {
      const message = messageOf(line)
      const size = (message.key?.length ?? 0) + (message.value?.length ?? 0)
      if (bytes + size > SEND_BYTES) await flush()
      messages.push(message)
      bytes += size
    }
    await flush()
  } finally {
    await producer.disconnect()
  }
}

const say = (event) => process.stdout.write(JSON.stringify(event) + '\n')

// kafkajs has one assignor of its own, which no other library knows: in a group with others its users bring one like this.
const range = ({ cluster }) => ({
  name: 'range',
  version: 0,
  protocol({ topics }) {
    return { name: this.name, metadata: AssignerProtocol.MemberMetadata.encode({ version: this.version, topics }) }
  },
  async assign({ members, topics }) {
    const ids = members.map(({ memberId }) => memberId).sort()
    const assignments = new Map(ids.map((id) => [id, {}]))
    for (const topic of topics) {
      const partitions = cluster.findTopicPartitionMetadata(topic).map(({ partitionId }) => partitionId).sort((a, b) => a - b)
      const share = partitions.length / ids.length
      ids.forEach((id, nth) => (assignments.get(id)[topic] = partitions.slice(Math.ceil(nth * share), Math.ceil((nth + 1) * share))))
    }
    return ids.map((memberId) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: this.version, assignment: assignments.get(memberId) }),
    }))
  },
})

// kafkajs has no static members.
async function member(bootstrap, topic, groupId) {
  await registerCodecs()
  // It logs every heartbeat that tells it of a rebalance as an error.
  const consumer = kafka(bootstrap, logLevel.NOTHING).consumer({
    groupId,
    partitionAssigners: [range],
    sessionTimeout: 6000,
    rebalanceTimeout: 60000,
    heartbeatInterval: 500,
  })
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => say({ owns: [...(payload.memberAssignment[topic] ?? [])].sort((a, b) => a - b) }))
  consumer.on(consumer.events.REBALANCING, () => say({ owns: [] }))
  consumer.on(consumer.events.CRASH, ({ payload }) => say({ error: String(payload.error) }))
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => say({ record: [partition, Number(message.offset)] }),
  })
  for await (const _ of process.stdin);
  await consumer.disconnect()
  say({ closed: true })
  // After a lost connection kafkajs starts its consumer anew, even if it was closed meanwhile: the process would never end by itself.
  process.exit(0)
}

const [command, ...args] = process.argv.slice(2)
const run = { create, produce, member }[command]
run(...args).catch((error) => {
  console.error(error)
  process.exit(1)
})

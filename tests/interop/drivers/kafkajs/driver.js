// kafkajs behind the driver's calls (see driver_protocol.py for what they mean).
//
// A kafkajs consumer cannot assign: it always joins a group. So records are read with the classes
// that its consumer is built on, `Cluster` and `Broker`: the same connection, Fetch request and
// decoder, without the group around them. Snappy, LZ4 and Zstandard are plug-ins, as its manual
// says. It tells no topic ids, and cannot ask for the offset of the largest timestamp.

const fs = require('fs')
const readline = require('readline')
const lz4 = require('lz4-napi')
const zstd = require('@bokuweb/zstd-wasm')
const snappy = require('kafkajs-snappy')
const { Kafka, logLevel, CompressionTypes, CompressionCodecs, ConfigResourceTypes } =
  require('kafkajs')
const Cluster = require('kafkajs/src/cluster')
const { createLogger } = require('kafkajs/src/loggers')
const errorLogger = () => (entry) => console.error(JSON.stringify(entry.log))
const socketFactory = require('kafkajs/src/network/socketFactory')

const bootstrap = process.argv[2]
const retry = { initialRetryTime: 50, retries: 3 }
const client = {
  clientId: 'interop',
  brokers: [bootstrap],
  connectionTimeout: 5000,
  retry,
}
const CODECS = { none: 0, gzip: 1, snappy: 2, lz4: 3, zstd: 4 }
const FETCH_BYTES_MAX = 16 << 20

CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async (encoder) => lz4.compressFrame(encoder.buffer),
  decompress: async (buffer) => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async (encoder) => Buffer.from(zstd.compress(encoder.buffer)),
  decompress: async (buffer) => Buffer.from(zstd.decompress(buffer)),
})

class Unsupported extends Error {}

const unpack = (text) => (text === null ? null : Buffer.from(text, 'base64'))
const pack = (data) => (data === null || data === undefined ? null : data.toString('base64'))

// Several values of one name are an array, in its way of writing headers.
const toHeaders = (pairs) => {
  const headers = {}
  for (const [name, text] of pairs) {
    const value = unpack(text)
    headers[name] = name in headers ? [].concat(headers[name], [value]) : value
  }
  return headers
}

const fromHeaders = (headers) =>
  Object.entries(headers).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value]).map((one) => [name, pack(one)])
  )

let kafka, admin, cluster

const open = (settings) => {
  kafka = new Kafka({ ...settings, logLevel: logLevel.ERROR, logCreator: errorLogger })
  admin = kafka.admin()
  cluster = new Cluster({
    ...settings,
    logger: createLogger({ level: logLevel.ERROR, logCreator: errorLogger }),
    socketFactory: socketFactory(),
    requestTimeout: 30000,
    enforceRequestTimeout: true,
    metadataMaxAge: 300000,
    allowAutoTopicCreation: false,
    maxInFlightRequests: null,
  })
}

const connect = async () => {
  await admin.connect()
  await cluster.connect()
}

const disconnect = async () => {
  await admin.disconnect()
  await cluster.disconnect()
}

const read = (path) => (path ? fs.readFileSync(path) : undefined)

const securedClient = ({ protocol, mechanism, user, password, token, ...more }) => ({
  ...client,
  brokers: [more.bootstrap],
  // Before the end of a session; a broker renews none within its first second.
  reauthenticationThreshold: 300,
  ssl:
    protocol === 'SASL_PLAINTEXT'
      ? undefined
      : { ca: [read(more.ca)], cert: read(more.certificate), key: read(more.key) },
  sasl: mechanism
    ? {
        mechanism: mechanism.toLowerCase(),
        username: user,
        password,
        oauthBearerProvider: async () => ({ value: token }),
      }
    : undefined,
})

const leaderOf = async (topic, partition) => {
  await cluster.addTargetTopic(topic)
  await cluster.refreshMetadata()
  const found = cluster.findTopicPartitionMetadata(topic)
  const { leader } = found.find(({ partitionId }) => partitionId === partition)
  return cluster.findBroker({ nodeId: leader })
}

const offsetAt = async (topic, partition, at, number) => {
  if (at === 'offset') return number
  if (at === 'max_timestamp') throw new Unsupported(at)
  if (at === 'timestamp') {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, number)
    return Number(found.find((one) => one.partition === partition).offset)
  }
  const found = (await admin.fetchTopicOffsets(topic)).find((one) => one.partition === partition)
  return Number(at === 'earliest' ? found.low : found.high)
}

const calls = {
  async describe_cluster() {
    const { brokers, controller, clusterId } = await admin.describeCluster()
    const nodes = brokers.map(({ nodeId, host, port }) => ({ id: nodeId, host, port }))
    return { nodes, controller, cluster_id: clusterId }
  },

  async create_topic({ topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const created = await admin.createTopics({
      topics: [{ topic, numPartitions: partitions, replicationFactor: 1, configEntries }],
    })
    // It tells of a topic that exists already with a plain `false`.
    if (!created) throw Object.assign(new Error('false'), { name: 'false', code: 36 })
    return null
  },

  async delete_topic({ topic }) {
    await admin.deleteTopics({ topics: [topic] })
    return null
  },

  async list_topics() {
    return (await admin.listTopics()).sort()
  },

  async describe_topic({ topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    const [{ name, partitions }] = topics
    return {
      name,
      topic_id: null,
      partitions: partitions.map(({ partitionId, leader, replicas, isr }) => ({
        id: partitionId,
        leader,
        replicas,
        isr,
      })),
    }
  },

  async topic_configs({ topic, names }) {
    const { resources } = await admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: names }],
    })
    return Object.fromEntries(
      resources[0].configEntries.map(({ configName, configValue }) => [configName, configValue])
    )
  },

  async list_offset({ topic, partition, at, number }) {
    return offsetAt(topic, partition, at, number)
  },

  async produce({ topic, codec, acks, idempotence, records }) {
    const producer = kafka.producer({
      idempotent: idempotence,
      maxInFlightRequests: idempotence ? 1 : undefined,
      allowAutoTopicCreation: false,
      retry,
    })
    await producer.connect()
    try {
      const answers = await producer.send({
        topic,
        acks: acks === 'all' ? -1 : Number(acks),
        compression: CODECS[codec],
        messages: records.map((record) => ({
          partition: record.partition,
          key: unpack(record.key),
          value: unpack(record.value),
          headers: toHeaders(record.headers),
          timestamp: record.timestamp_ms === null ? undefined : String(record.timestamp_ms),
        })),
      })
      // With acks=0 nothing is told back.
      if (acks === '0') return records.map(() => [-1, -1])
      const next = new Map(answers.map((one) => [one.partition, Number(one.baseOffset)]))
      return records.map(({ partition }) => {
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return [partition, offset]
      })
    } finally {
      await producer.disconnect()
    }
  },

  async fetch({ topic, partition, at, number, count, timeout_ms, then_produce }) {
    await connect()
    let offset = await offsetAt(topic, partition, at, number)
    const broker = await leaderOf(topic, partition)
    const sending = then_produce ? calls.produce(then_produce) : Promise.resolve()
    const found = []
    const deadline = Date.now() + timeout_ms
    while (found.length < count && Date.now() < deadline) {
      const { responses } = await broker.fetch({
        maxWaitTime: 250,
        minBytes: 1,
        maxBytes: FETCH_BYTES_MAX,
        isolationLevel: 0,
        topics: [
          {
            topic,
            partitions: [{ partition, fetchOffset: String(offset), maxBytes: FETCH_BYTES_MAX }],
          },
        ],
      })
      // A batch comes whole: what lies before the offset that was asked for is not ours.
      const records = responses
        .flatMap(({ partitions }) => partitions)
        .flatMap(({ messages }) => messages)
        .filter((record) => Number(record.offset) >= offset)
      for (const record of records) {
        found.push(record)
        offset = Number(record.offset) + 1
      }
    }
    await sending
    return found.slice(0, count).map((record) => ({
      partition,
      offset: Number(record.offset),
      key: pack(record.key),
      value: pack(record.value),
      headers: fromHeaders(record.headers),
      timestamp_ms: Number(record.timestamp),
      timestamp_type: record.batchContext.timestampType === 1 ? 'append' : 'create',
    }))
  },
}

calls.secure = async ({ security }) => {
  await disconnect()
  open(securedClient(security))
  return null
}

const errorOf = (error) => {
  if (error instanceof Unsupported) return { class: 'Unsupported', code: null }
  const [first] = error.errors || []
  const inner = first || error.cause
  if (inner && error.code === undefined) return errorOf(inner)
  const code = typeof error.code === 'number' ? error.code : null
  return { class: error.type || error.name, code, message: error.message }
}

const main = async () => {
  await zstd.init()
  open(client)
  await connect()
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const { op, ...words } = JSON.parse(line)
    let answer
    try {
      answer = { ok: await calls[op](words) }
    } catch (error) {
      console.error(error)
      answer = { error: errorOf(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  await disconnect()
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})

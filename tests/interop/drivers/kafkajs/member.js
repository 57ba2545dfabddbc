// One member of a group by kafkajs, as a process; see group_member.py for what it says.
//
//     node member.js BOOTSTRAP GROUP TOPIC SESSION_MS HEARTBEAT_MS

const readline = require('readline')
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, sessionMs, heartbeatMs] = process.argv.slice(2)
const kafka = new Kafka({ clientId: 'member', brokers: [bootstrap], logLevel: logLevel.NOTHING })
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: Number(sessionMs),
  heartbeatInterval: Number(heartbeatMs),
  maxWaitTimeInMs: 100,
})
const say = (words) => console.log(JSON.stringify(words))
let assigned = []

consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  assigned = (payload.memberAssignment[topic] || []).sort((one, other) => one - other)
  say({ assigned })
})

const eachMessage = async ({ partition, message }) => {
  say({ value: message.value.toString(), partition })
  const offset = String(BigInt(message.offset) + 1n)
  // A rebalance may overtake it: whoever has the partition next sees the record again.
  await consumer.commitOffsets([{ topic, partition, offset }]).catch(() => {})
}

const main = async () => {
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  await consumer.run({ autoCommit: false, eachMessage })
  const lines = readline.createInterface({ input: process.stdin })
  lines.on('line', () => assigned.forEach((partition) => consumer.seek({ topic, partition, offset: '0' })))
  lines.on('close', async () => {
    await consumer.disconnect()
    say({ left: true })
    process.exit(0)
  })
}

main()

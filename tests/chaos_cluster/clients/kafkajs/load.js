// kafkajs' producer that runs through faults: the protocol of tests/crash/load.py.
//
//     node load.js BOOTSTRAP SEED SECONDS
//
// It prints `a NUMBER PARTITION OFFSET` for an acknowledgement and `f NUMBER PARTITION REASON` for a
// record that it abandoned, and ends when its input ends, after requests in flight are settled.
//
// Each call sends records of one partition, one call at a time: a call with partitions of several
// leaders repeats the acknowledged ones too if a leader changes between its tries.

const { Kafka, logLevel } = require('kafkajs')

const TOPIC = 'ledger'
const NAME = 'kafkajs'
const PARTITIONS = 4
const BURST = 8
const PAUSE_MS = 30
const BACKOFF_MS = 50
const RETRIES = 900 // of up to 100 ms each: a minute and a half

const [bootstrap, seed, seconds] = process.argv.slice(2)

const value = (number, partition) => {
  const size = ((number * 7919) % 300) + (number % 64 === 63 ? 20000 : 0)
  return Buffer.concat([Buffer.from(`${NAME}:${number}:${partition}:`), Buffer.alloc(size)])
}

let state = Number(seed) + 1
const dice = () => {
  state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff
  return state / 0x80000000
}

const pause = () => new Promise((done) => setTimeout(done, PAUSE_MS))

const main = async () => {
  const kafka = new Kafka({
    clientId: 'load',
    brokers: bootstrap.split(','),
    connectionTimeout: 2000,
    requestTimeout: Number(seconds) * 1000,
    enforceRequestTimeout: true,
    logLevel: logLevel.NOTHING,
    retry: { initialRetryTime: BACKOFF_MS, maxRetryTime: BACKOFF_MS * 2, retries: RETRIES },
  })
  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
  await producer.connect()
  let isOver = false
  process.stdin.resume()
  process.stdin.on('end', () => {
    isOver = true
  })
  for (let number = 0, partition = 0; !isOver; number += BURST) {
    if (dice() < 0.8) partition = Math.floor(dice() * PARTITIONS)
    const numbers = Array.from({ length: BURST }, (_, index) => number + index)
    const messages = numbers.map((one) => ({ partition, value: value(one, partition) }))
    try {
      const [placed] = await producer.send({ topic: TOPIC, acks: -1, messages })
      numbers.forEach((one, index) =>
        console.log(`a ${one} ${partition} ${Number(placed.baseOffset) + index}`)
      )
    } catch (error) {
      const reason = `${error.name}: ${error.message}`.replace(/\n/g, ' ')
      numbers.forEach((one) => console.log(`f ${one} ${partition} ${reason}`))
    }
    await pause()
  }
  await producer.disconnect()
  process.exit(0)
}

main().catch((error) => {
  console.error(error)
  process.exit(1)
})

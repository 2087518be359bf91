// A member of a kafka-node group: HighLevelConsumer of kafka-node 2.6, which is in ZooKeeper.
//
// Arguments: ZooKeeper (with a chroot), group, topic.  Events and commands: member_events.py.
'use strict'

const readline = require('readline')
const kafka = require('kafka-node')

const [zookeeper, group, topic] = process.argv.slice(2)

const printEvent = (event, members) => {
  process.stdout.write(JSON.stringify({ event, t: Date.now(), ...members }) + '\n')
}

const consumer = new kafka.HighLevelConsumer(
  new kafka.Client(zookeeper, 'kafka-node-member'),
  [{ topic }],
  { groupId: group, autoCommit: true, autoCommitIntervalMs: 500 }
)
consumer.on('registered', () => printEvent('started', { consumer: consumer.id }))
consumer.on('rebalanced', () => {
  printEvent('rebalanced', { partitions: consumer.topicPayloads.map(each => Number(each.partition)) })
})
consumer.on('error', error => printEvent('error', { text: String(error) }))
consumer.on('message', message => {
  printEvent('handed', { topic: message.topic, partition: Number(message.partition), offset: message.offset })
})

const close = () => {
  consumer.close(true, error => {
    printEvent('stopped', { text: error ? String(error) : null })
    process.exit(0)
  })
}
const commands = readline.createInterface({ input: process.stdin })
commands.on('line', line => {
  if (line === 'commit') consumer.commit(true, () => printEvent('committed', {}))
})
commands.on('close', close)
process.on('SIGTERM', close)

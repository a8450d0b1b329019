/** A relay in a process of its own. */
import { once } from 'node:events'
import { createRelay, type RelayOptions } from '../../src/index.ts'

const relay = createRelay(JSON.parse(process.argv[2] ?? '{}') as RelayOptions)
await relay.start()
process.stdout.write('running.\n')
const look = setInterval(() => {
  if (!relay.metrics().isLeader) return
  clearInterval(look)
  process.stdout.write('leads.\n')
}, 10).unref()
await once(process, 'SIGTERM')
await relay.stop()

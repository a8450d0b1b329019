/** A relay in a process of its own, which says when it leads. */
import { once } from 'node:events'
import { createRelay, type RelayOptions } from '../../src/index.ts'

const relay = createRelay(JSON.parse(process.argv[2] ?? '{}') as RelayOptions)
await relay.start()
process.stdout.write('running.\n')
let isLeader = false
setInterval(() => {
  if (relay.metrics().isLeader === isLeader) return
  isLeader = !isLeader
  process.stdout.write(isLeader ? 'leads.\n' : 'leads no more.\n')
}, 10).unref()
await once(process, 'SIGTERM')
await relay.stop()

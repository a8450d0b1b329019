/** A relay in a process of its own. */
import { once } from 'node:events'
import { createRelay } from '../../src/index.ts'
import { listenToParent } from './parent.ts'

export interface RelayProcessOptions {
  postgres: string
  redis: string
  laneWindow?: number
  queueDepth?: number
}

const relay = createRelay(JSON.parse(process.argv[2] ?? '{}') as RelayProcessOptions)
const parent = listenToParent({})
await relay.start()
parent.tell({ isRunning: true })
await once(process, 'SIGTERM')
await relay.stop()
parent.leave()

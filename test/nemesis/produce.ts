/** A producer in a process of its own, with a few users who do as a seed says. */
import { setTimeout as pause } from 'node:timers/promises'
import { createProducer } from '../../src/index.ts'
import { isTransientError } from '../../src/postgres/transient-error.ts'
import { seeded } from '../support/graph-load.ts'
import { type CallLine, lineWriter } from './evidence.ts'
import { listenToParent } from './parent.ts'
import { User } from './user.ts'

export interface ProduceOptions {
  name: string
  seed: number
  postgres: string
  /** Hints, if given. */
  redis?: string
  journal: string
  users: number
}

/** Users wait while more than so many jobs are unfinished. */
const MOST_BACKLOG = 500
const PACE_MS = 150

const options = JSON.parse(process.argv[2] ?? '{}') as ProduceOptions
const write = lineWriter<CallLine>(options.journal)
const producer = createProducer({
  postgres: options.postgres,
  ...(options.redis ? { redis: options.redis } : {}),
})
let backlog = 0
let isFinishing = false
let calls = 0
const parent = listenToParent({
  backlog: jobs => {
    backlog = jobs
  },
  finish: () => {
    isFinishing = true
  },
})

async function use(seed: number): Promise<void> {
  const random = seeded(seed)
  const { name, postgres } = options
  const user = new User({ name, postgres, producer, random, next: () => calls++, write })
  while (!isFinishing) {
    await pause(random() * 2 * PACE_MS)
    if (backlog > MOST_BACKLOG) continue
    // Cancels and changes may fail while Postgres is away; what else fails is in the journal.
    await user.act().catch(error => {
      if (isTransientError(error)) parent.complain(error)
      else write({ e: 'failed', call: `${name}, a cancel or a change`, because: String(error) })
    })
  }
}

parent.tell({ isRunning: true })
await Promise.all(Array.from({ length: options.users }, (_, n) => use(options.seed * 100 + n)))
await producer.close()
parent.leave()

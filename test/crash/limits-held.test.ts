import { expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { countStatements } from '../support/counting-proxy.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const limited = (concurrency: number) => defineTask({ name: 'limited', concurrency })

it('[L6] [S10] a worker with another limit waits for a process that is paused while it frees a slot', async () => {
  await deployment.worker({ handlers: [limited(2).handle(() => undefined)] })
  // As `complete` does between its last statement and the commit.
  const paused = await database.connect()
  await paused.query('begin')
  await paused.query('select from longshore.slot_groups for update')
  const proxy = await countStatements(database.url)
  const calls = () =>
    [...proxy.counts].filter(([text]) => text.includes('register_tasks')).reduce((n, [, c]) => n + c, 0)
  const started = deployment.worker({ postgres: proxy.url, handlers: [limited(5).handle(() => undefined)] })
  try {
    // More often than it tries to reach a server.
    await Promise.race([started, eventually('it tries again and again', async () => calls() > 6)])
    await paused.query('rollback')
    await started
    expect(await database.rows('select concurrency from longshore.tasks')).toEqual([{ concurrency: 5 }])
  } finally {
    await proxy.close()
  }
})

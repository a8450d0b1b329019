/** A live system, whichever way its jobs go: the doctor finds nothing to tell, repairs nothing, and stops nobody. */
import { expect, it } from 'vitest'
import { defineTask, doctor, type GroupBuilder } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const linked = defineTask<string>({ name: 'linked', retry: { maxAttempts: 3, backoff: () => 5 } })
const limited = defineTask<string>({ name: 'limited', concurrency: 3, concurrencyPerKey: 1 })

it('[X6] reports nothing, repairs nothing and stops nobody', async () => {
  const producer = deployment.producer({ tasks: [linked, limited] })
  const handlers = [
    linked.handle(async job => {
      if (job.attempt === 1 && job.payload === 'retried') throw new Error('not yet')
    }),
    limited.handle(async () => undefined),
  ]
  for (let n = 0; n < 2; n++) await deployment.worker({ handlers, maxConcurrentTasks: 20 })
  let isLoaded = true
  const groups: GroupBuilder[] = []
  const load = (async () => {
    while (isLoaded) {
      const group = producer.group()
      const top = group.add(linked, 'retried')
      const middle = Array.from({ length: 10 }, (_, n) =>
        group.add(linked, 'middle', { after: top, workflow: `live ${n % 3}` }),
      )
      group.add(linked, 'bottom', { after: middle })
      await group.submit()
      groups.push(group)
      await producer.enqueueMany(limited, ['x', 'y', 'z'], { concurrencyKey: `${groups.length % 4}` })
      const [cancelled] = await producer.enqueueMany(linked, ['p', 'q'], { workflow: 'live 0' })
      if (cancelled) await producer.cancel(cancelled)
      await producer.waitForGroup(groups[Math.max(0, groups.length - 4)] as GroupBuilder)
    }
  })()
  const { redis } = deployment
  for (let n = 0; n < 3; n++) {
    const report = await doctor({
      postgres: database.url,
      ...(redis ? { redis } : {}),
      repair: true,
      pageSize: 100,
      pause: 1,
    })
    expect(report.violations).toEqual([])
    expect(report.repaired).toEqual([])
  }
  isLoaded = false
  await load
  for (const group of groups)
    expect(await producer.waitForGroup(group)).toMatchObject({
      state: 'succeeded',
      counts: { succeeded: 12 },
    })
})

/** Payloads and names that nobody would choose: each is refused with an error that says why, or comes through as it is. */
import { isDeepStrictEqual } from 'node:util'
import fc from 'fast-check'
import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { always, expectOwnError, label, legalPayload, refusedPayload, SECRET } from '../support/hostile.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const echo = defineTask<unknown>({ name: 'echo', retry: { maxAttempts: 1 } })

/** A logger that keeps everything. */
function listen() {
  const lines: string[] = []
  const logger = pino({ level: 'trace' }, { write: (line: string) => void lines.push(line) })
  return { lines, logger }
}

const asStored = (value: unknown): unknown => JSON.parse(JSON.stringify(value))
const countJobs = async () =>
  (await database.rows<{ n: number }>('select count(*)::int as n from longshore.jobs'))[0]?.n

describe('payloads', () => {
  it('come back as they were, and what cannot be stored is refused alone, or with the whole list', async () => {
    const { lines, logger } = listen()
    const producer = deployment.producer({ logger })
    await deployment.worker({ handlers: [echo.handle(job => job.payload)], logger })
    const rounds = fc.tuple(fc.array(legalPayload, { minLength: 1, maxLength: 6 }), refusedPayload)
    await always(
      'payloads',
      20,
      fc.asyncProperty(rounds, async ([legal, { name, value }]) => {
        const [bad, all, ...good] = await Promise.allSettled([
          producer.enqueue(echo, value),
          producer.enqueueMany(echo, [...legal, value]),
          ...legal.map(payload => producer.enqueue(echo, payload)),
        ])
        for (const { status, reason } of [bad, all] as PromiseRejectedResult[]) {
          expect(status, name).toBe('rejected')
          expectOwnError(reason, name)
          expect(reason, name).toMatchObject({ code: 'PAYLOAD_REFUSED' })
        }
        for (const [n, made] of good.entries()) {
          if (made.status === 'rejected' || !('id' in made.value)) throw new Error(`not made: ${n}`)
          const job = await producer.waitFor(made.value)
          if (job.state !== 'succeeded') throw new Error(`it is ${job.state}`)
          for (const found of [job.payload, job.result])
            expect(isDeepStrictEqual(found, asStored(legal[n])), JSON.stringify(legal[n])).toBe(true)
        }
        expect(await countJobs()).toBe(0)
      }),
    )
    expect(Object.keys(Object.prototype)).toEqual([])
    expect({}).not.toHaveProperty('polluted')
    expect(lines.join('')).not.toContain(SECRET)
  })

  it('are refused by their schema without being told, and a schema that throws is told as such', async () => {
    const { lines, logger } = listen()
    const producer = deployment.producer({ logger })
    const strict = defineTask({ name: 'strict', payload: z.object({ card: z.string().max(3) }) })
    await expect(producer.enqueue(strict, { card: SECRET })).rejects.toMatchObject({
      code: 'PAYLOAD_INVALID',
      message: expect.not.stringContaining(SECRET),
    })
    const broken = defineTask({
      name: 'broken',
      payload: z.unknown().transform(() => {
        throw new TypeError('of undefined')
      }),
    })
    await expect(producer.enqueue(broken, 1)).rejects.toMatchObject({
      code: 'PAYLOAD_INVALID',
      message: 'the payload does not fit task broken: its schema could not check it: of undefined',
    })
    expect(lines.join('')).not.toContain(SECRET)
  })

  it('are those of the moment of the call, however long the schema looks', async () => {
    const producer = deployment.producer()
    const slow = defineTask<{ n: number }>({
      name: 'slow',
      payload: z.object({ n: z.number() }).refine(async () => {
        await new Promise(resolve => setImmediate(resolve))
        return true
      }),
    })
    const payload = { n: 1 }
    const list = [payload]
    const options = { priority: 1 }
    const one = producer.enqueue(slow, payload, options)
    const many = producer.enqueueMany(slow, list, options)
    payload.n = 2
    options.priority = 2
    list.push(payload)
    const refs = [await one, ...(await many)]
    for (const ref of refs) expect(await producer.get(ref)).toMatchObject({ payload: { n: 1 }, priority: 1 })
    expect(refs).toHaveLength(2)
  })

  it('of every size travel whole up to the limit, and beyond it are refused', async () => {
    const producer = deployment.producer({ maxPayloadBytes: 4 * 1024 * 1024 })
    await deployment.worker({ handlers: [echo.handle(({ payload }) => String(payload).length)] })
    const huge = 'x'.repeat(10 * 1024 * 1024)
    await expect(producer.enqueue(echo, huge)).rejects.toMatchObject({
      code: 'PAYLOAD_REFUSED',
      message: expect.stringContaining('is 10485762 bytes of JSON, the limit is 4194304'),
    })
    const whole = 'y'.repeat(4 * 1024 * 1024 - 2)
    // Postgres writes each of these numbers with 309 digits: 9 MB of text for each of the jobs.
    const wide = Array(30_000).fill(1e308)
    const refs = await producer.enqueueMany(echo, [whole, ...Array(4).fill(wide)])
    for (const ref of refs) {
      const { payload, ...job } = await producer.waitFor(ref)
      expect(job).toMatchObject({ state: 'succeeded', result: String(payload).length })
      expect(payload === whole || isDeepStrictEqual(payload, wide)).toBe(true)
    }
  })
})

describe('names', () => {
  it('of every kind come through as they are, from code and from SQL', async () => {
    const { lines, logger } = listen()
    const names = fc.uniqueArray(label, { minLength: 6, maxLength: 12 })
    await always(
      'names',
      3,
      fc.asyncProperty(
        names,
        async ([queue = '', tag = '', key = '', value = '', workflow = '', ...tasks]) => {
          const defined = tasks.map(name => defineTask<unknown>({ name, queue, tag, concurrencyPerKey: 2 }))
          const producer = deployment.producer({ logger })
          const constraints = { gpu: value.slice(0, 40).toWellFormed() }
          const worker = await deployment.worker({
            handlers: defined.map(task => task.handle(({ task }) => task)),
            properties: constraints,
            name: value,
            logger,
          })
          const refs = []
          for (const task of defined) {
            refs.push(await producer.enqueue(task, SECRET, { constraints, concurrencyKey: key, workflow }))
            const [row] = await database.rows<{ id: string }>('select longshore.enqueue($1, $2, $3) as id', [
              task.name,
              JSON.stringify(SECRET),
              { constraints, concurrencyKey: key, workflow },
            ])
            refs.push({ id: String(row?.id), task: task.name })
          }
          for (const ref of refs) {
            const job = await producer.waitFor(ref.id)
            expect(job).toMatchObject({ result: ref.task, task: ref.task, queue, tag, constraints })
            expect(await producer.explain(ref.id)).toMatchObject({ task: ref.task, state: 'succeeded' })
          }
          expect((await worker.prometheus()).text).toContain('worker_tasks_completed_total{')
          await worker.stop()
        },
      ),
    )
    expect(lines.join('')).not.toContain(SECRET)
  })
})

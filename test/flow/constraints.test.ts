import fc from 'fast-check'
import { afterEach, describe, expect, it } from 'vitest'
import { createWorker, defineTask, readPropertyKeys, setPropertyKeys } from '../../src/index.ts'
import { constraintTag } from '../../src/job/constraints.ts'
import { workByHand } from '../support/by-hand.ts'
import { constraintsArbitrary } from '../support/constraint-arbitraries.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually, gate } from '../support/signals.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const train = defineTask({ name: 'train' })
const other = defineTask({ name: 'other' })
const DEFAULT_KEYS = ['gpu', 'mem', 'region']

afterEach(() => setPropertyKeys({ postgres: database.url, keys: DEFAULT_KEYS }))

describe('property keys', () => {
  it('[C1] are gpu, mem and region until others are declared; a fourth is refused by name', async () => {
    const where = { postgres: database.url }
    expect(await readPropertyKeys(where)).toEqual(DEFAULT_KEYS)
    await expect(setPropertyKeys({ ...where, keys: ['gpu', 'mem', 'region', 'zone'] })).rejects.toMatchObject(
      {
        code: 'CONSTRAINT_INVALID',
        message: expect.stringContaining('gpu, mem, region, zone are 4 keys, at most 3 are possible'),
      },
    )
    await expect(
      database.rows("update longshore.settings set property_keys = '{gpu,mem,region,zone}'"),
    ).rejects.toThrow('at_most_three_property_keys')
    expect(await setPropertyKeys({ ...where, keys: ['zone'] })).toEqual(['zone'])
    expect(await readPropertyKeys(where)).toEqual(['zone'])
    expect(await setPropertyKeys({ ...where, keys: [] })).toEqual([])
    await expect(deployment.producer().enqueue(train, 1, { constraints: { gpu: 'a100' } })).rejects.toThrow(
      'property key "gpu" is not declared; declared are: none',
    )
  })
})

describe('the constraint tag in SQL', () => {
  const inSql = (given: unknown[]) =>
    database.rows<{ tag: string }>(
      'select longshore.constraint_tag(g.value) as tag from jsonb_array_elements($1) with ordinality as g(value, no) order by no',
      [JSON.stringify(given)],
    )

  it('[C4] is the one that TypeScript makes, and passes the check on lanes', async () => {
    const samples = fc.sample(constraintsArbitrary, 3000)
    const rows = await inSql(samples)
    expect(rows.map(row => row.tag)).toEqual(samples.map(constraintTag))
    await database.rows(
      `with made as (
         insert into longshore.lanes (queue, task, tag, constraint_tag)
         select 'q', 'differential', 't', t from unnest($1::text[]) t returning id
       ) select count(*) from made`,
      [rows.map(row => row.tag)],
    )
    await database.rows("delete from longshore.lanes where task = 'differential'")
  })

  it('[C4] names the keys that were asked for', async () => {
    const samples = fc.sample(constraintsArbitrary, 500)
    const rows = await database.rows<{ keys: string[] }>(
      'select longshore.constraint_keys(t) as keys from unnest($1::text[]) with ordinality as g(t, no) order by no',
      [samples.map(constraintTag)],
    )
    expect(rows.map(row => row.keys)).toEqual(samples.map(sample => Object.keys(sample).sort()))
  })

  it.each([
    [{ GPU: 'a' }],
    [{ ['k'.repeat(41)]: 'a' }],
    [JSON.parse('{"__proto__": "a"}')],
    [{ gpu: '' }],
    [{ gpu: 'x'.repeat(101) }],
    [{ gpu: '😀'.repeat(101) }],
    [{ gpu: '😀'.repeat(50) }],
    [{ gpu: 1 }],
    [{ gpu: null }],
    [{ gpu: ['a'] }],
    [{ a: '1', b: '2', c: '3', d: '4' }],
    [null],
    ['gpu'],
    [['gpu']],
  ])('refuses %j as TypeScript does', async given => {
    expect(() => constraintTag(given as Record<string, string>)).toThrow(
      expect.objectContaining({ code: 'CONSTRAINT_INVALID' }),
    )
    await expect(inSql([given])).rejects.toMatchObject({ code: 'LS001' })
  })
})

describe('a job with constraints', () => {
  it('[C2] never goes to a worker whose property differs, and runs when one has it', async () => {
    const producer = deployment.producer()
    await deployment.worker({ handlers: [train.handle(() => 'a100')], properties: { gpu: 'a100' } })
    const h100 = await producer.enqueue(train, 1, { constraints: { gpu: 'h100' } })
    const a100 = await producer.enqueue(train, 2, { constraints: { gpu: 'a100' } })
    expect(await producer.waitFor(a100)).toMatchObject({ result: 'a100', constraints: { gpu: 'a100' } })
    expect(await producer.get(h100)).toMatchObject({
      state: 'ready',
      hasWorker: false,
      tag: 'default',
      constraints: { gpu: 'h100' },
    })
    await deployment.worker({
      handlers: [train.handle(() => 'h100')],
      properties: { region: 'eu', gpu: 'h100' },
    })
    expect(await producer.waitFor(h100)).toMatchObject({ result: 'h100', constraints: { gpu: 'h100' } })
  })

  it('[C3] finds a worker that has gpu and mem in its row with exactly 4 tags, none naming region', async () => {
    await deployment.worker({
      handlers: [train.handle(() => 1)],
      properties: { mem: 'high', gpu: 'a,100%' },
    })
    expect(await database.rows('select properties, constraint_tags from longshore.workers')).toEqual([
      {
        properties: { gpu: 'a,100%', mem: 'high' },
        constraint_tags: ['c:', 'c:gpu=a%2C100%25', 'c:mem=high', 'c:gpu=a%2C100%25,mem=high'],
      },
    ])
  })

  it.each([[undefined], [{ gpu: 'a100' }]])(
    '[C5] without any runs on a worker with properties %j, in both forms',
    async properties => {
      const producer = deployment.producer()
      await deployment.worker({
        handlers: [train.handle(() => 'ran')],
        ...(properties ? { properties } : {}),
      })
      const refs = [
        await producer.enqueue(train, 1),
        await producer.enqueue(train, 1, { constraints: {} }),
        ...(await producer.enqueueMany(train, [1, 1], { constraints: {} })),
      ]
      for (const sql of ['{}', '{"constraints": {}}', '{"constraints": null}']) {
        const [row] = await database.rows<{ id: string }>(
          "select longshore.enqueue('train', '1', $1) as id",
          [sql],
        )
        refs.push({ ...(refs[0] as (typeof refs)[0]), id: row?.id as never })
      }
      for (const ref of refs) {
        expect(await producer.waitFor(ref)).toMatchObject({ result: 'ran', constraints: {} })
      }
    },
  )

  it('[C6] goes to a worker only if tag, constraints, task, time and state all allow it', async () => {
    const producer = deployment.producer()
    const tags = ['left', 'right']
    const asked = [
      {},
      { gpu: 'a100' },
      { gpu: 'h100' },
      { mem: 'high' },
      { mem: 'high', gpu: 'a100' },
      { region: 'eu', mem: 'high', gpu: 'a100' },
    ]
    deployment.skipAudit('jobs are put into their states by hand')
    const states = ['ready', 'waiting', 'running', 'succeeded'] as const
    const holder = await workByHand(database, ['nothing'])
    const jobs: {
      id: string
      task: string
      tag: string
      constraints: Record<string, string>
      mayStart: boolean
    }[] = []
    for (const task of [train, other]) {
      for (const tag of tags) {
        for (const constraints of asked) {
          for (const isDue of [true, false]) {
            const runAt = new Date(isDue ? Date.now() - 1000 : Date.now() + 3_600_000)
            const refs = await producer.enqueueMany(
              task,
              states.map(() => 1),
              { tag, constraints, runAt },
            )
            for (const [n, state] of states.entries()) {
              const id = refs[n]?.id as string
              jobs.push({ id, task: task.name, tag, constraints, mayStart: isDue && state === 'ready' })
              if (state === 'waiting') {
                await database.rows(
                  "update longshore.jobs set state = 'waiting', pending = 1 where id = $1",
                  [id],
                )
              } else if (state !== 'ready') {
                await database.rows(
                  `update longshore.jobs set state = 'running', worker_id = $2, started_at = now(), attempts = 1
                   where id = $1`,
                  [id, holder.id],
                )
                if (state === 'succeeded') await holder.settle([{ id, token: '0' }])
              }
            }
          }
        }
      }
    }

    const has = [
      {},
      { gpu: 'a100' },
      { gpu: 'h100', mem: 'high' },
      { gpu: 'a100', mem: 'high', region: 'eu' },
    ]
    for (const tasks of [['train'], ['train', 'other']]) {
      for (const offered of [['left'], ['left', 'right'], ['neither']]) {
        for (const properties of has as Record<string, string>[]) {
          const expected = jobs.filter(
            job =>
              job.mayStart &&
              tasks.includes(job.task) &&
              offered.includes(job.tag) &&
              Object.entries(job.constraints).every(([key, value]) => properties[key] === value),
          )
          const worker = await workByHand(database, tasks, offered, properties)
          const claimed = await worker.claim(1000)
          expect(claimed.map(job => job.id).sort()).toEqual(expected.map(job => job.id).sort())
          await worker.settleOthers(
            claimed.map(job => ({ id: job.id, token: job.lease_token, outcome: 'released' })),
          )
        }
      }
    }
  })
})

describe('an undeclared key', () => {
  const refused = {
    code: 'CONSTRAINT_INVALID',
    message: expect.stringMatching(
      /property key "zone" is not declared; declared are: gpu, mem, region\..*`longshore properties`$/,
    ),
  }
  const constraints = { gpu: 'a100', zone: 'b' }

  it('[C9] is refused by enqueue and enqueueMany, and leaves nothing behind', async () => {
    const producer = deployment.producer()
    await expect(producer.enqueue(train, 1, { constraints })).rejects.toMatchObject(refused)
    await expect(producer.enqueueMany(train, [1, 2], { constraints })).rejects.toMatchObject(refused)
    await expect(
      producer.enqueueMany(
        train,
        Array.from({ length: 1500 }, (_, n) => n),
        { constraints },
      ),
    ).rejects.toMatchObject(refused)
    expect(await database.rows('select from longshore.jobs')).toEqual([])
    expect(await database.rows("select from longshore.lanes where constraint_tag like '%zone%'")).toEqual([])
  })

  it("[C9] is refused inside the user's transaction, which may go on from a savepoint", async () => {
    const producer = deployment.producer()
    const tx = await database.connect()
    await tx.query('begin')
    await tx.query('savepoint before')
    await expect(producer.enqueue(train, 1, { constraints, tx })).rejects.toMatchObject(refused)
    await tx.query('rollback to before')
    await expect(producer.enqueueMany(train, [1], { constraints, tx })).rejects.toMatchObject(refused)
    await tx.query('rollback to before')
    const ref = await producer.enqueue(train, 1, { constraints: { gpu: 'a100' }, tx })
    await tx.query('commit')
    expect(await producer.get(ref)).toMatchObject({ state: 'ready', constraints: { gpu: 'a100' } })
  })

  it('[C9] is refused by a producer that enqueued it while it was declared, without failing its neighbours', async () => {
    const producer = deployment.producer()
    await setPropertyKeys({ postgres: database.url, keys: ['gpu', 'zone'] })
    await producer.enqueue(train, 1, { constraints: { zone: 'b' } })
    await setPropertyKeys({ postgres: database.url, keys: DEFAULT_KEYS })
    const [bad, good, plain] = await Promise.allSettled([
      producer.enqueue(train, 1, { constraints: { zone: 'b' } }),
      producer.enqueue(train, 2, { constraints: { gpu: 'a100' } }),
      producer.enqueue(train, 3),
    ])
    expect(bad).toMatchObject({ status: 'rejected', reason: refused })
    expect(good.status).toBe('fulfilled')
    expect(plain.status).toBe('fulfilled')
    const tx = await database.connect()
    await tx.query('begin')
    await expect(producer.enqueue(train, 1, { constraints: { zone: 'b' }, tx })).rejects.toMatchObject(
      refused,
    )
    await tx.query('rollback')
  })

  it('[C9] is refused by plain SQL, which takes declared ones', async () => {
    const enqueue = (options: object) =>
      database.rows<{ id: string }>("select longshore.enqueue('train', '1', $1) as id", [options])
    await expect(enqueue({ constraints })).rejects.toMatchObject({
      code: 'LS001',
      message: 'longshore: property key "zone" is not declared; declared are: gpu, mem, region',
      hint: expect.stringContaining('longshore properties'),
    })
    await expect(enqueue({ constraints: 'gpu' })).rejects.toMatchObject({ code: 'LS001' })
    const [row] = await enqueue({ constraints: { mem: 'high', gpu: 'a=100' } })
    const worker = await workByHand(database, ['train'], ['default'], { gpu: 'a=100', mem: 'high' })
    expect(await worker.claim(10)).toMatchObject([{ id: row?.id }])
  })

  it('[C9] is refused at the start of a worker, which can be mended and started', async () => {
    const worker = createWorker({
      postgres: database.urlOf('worker'),
      handlers: [train.handle(() => 1)],
      properties: { zone: 'b' },
    })
    await expect(worker.start()).rejects.toMatchObject(refused)
    expect(await database.rows('select from longshore.workers')).toEqual([])
    await worker.setProperties({ gpu: 'b' })
    await worker.start()
    await worker.stop()
  })

  it('is no worse than a value that is none: both are refused before Postgres is asked', async () => {
    const producer = deployment.producer()
    await expect(producer.enqueue(train, 1, { constraints: { gpu: '' } })).rejects.toMatchObject({
      code: 'CONSTRAINT_INVALID',
      message: expect.stringContaining('constraints.gpu must have 1 to 100 characters'),
    })
    expect(() =>
      createWorker({ handlers: [train.handle(() => 1)], properties: { gpu: 1 as unknown as string } }),
    ).toThrow('properties.gpu must be a text; got 1')
  })
})

describe('a running worker', () => {
  it('[C11] that gets a property gets the jobs that waited for it; that loses it gets no more of them', async () => {
    const producer = deployment.producer()
    const ran: unknown[] = []
    const worker = await deployment.worker({ handlers: [train.handle(job => void ran.push(job.payload))] })
    const constraints = { gpu: 'a100' }
    const first = await producer.enqueue(train, 'first', { constraints })
    await producer.waitFor(await producer.enqueue(train, 'plain'))
    expect(await producer.get(first)).toMatchObject({ state: 'ready', hasWorker: false })

    await worker.setProperties(constraints)
    expect(await producer.waitFor(first)).toMatchObject({ state: 'succeeded' })

    await worker.setProperties({ mem: 'high' })
    const second = await producer.enqueue(train, 'second', { constraints })
    const third = await producer.enqueue(train, 'third', { constraints: { mem: 'high' } })
    await producer.waitFor(third)
    expect(await producer.get(second)).toMatchObject({ state: 'ready', hasWorker: false })
    expect(ran).toEqual(['plain', 'first', 'third'])
  })

  it('[C11] has got all jobs that it claimed by what it had before, once the change is made, and gets no more', async () => {
    const producer = deployment.producer()
    // A worker that meets a lane for the first time reads it before it runs its jobs.
    await database.rows("select longshore.make_lane('default', $1, 'default', 'c:gpu=a100')", [train.name])
    const ran: unknown[] = []
    const worker = await deployment.worker({
      properties: { gpu: 'a100' },
      handlers: [train.handle(job => void ran.push(job.payload))],
    })
    await database.rows(
      `create function slow_claim() returns trigger language plpgsql as
       'begin perform pg_advisory_xact_lock_shared(11); return new; end'`,
    )
    await database.rows(
      `create trigger slow_claim before update on longshore.jobs for each row
       when (new.state = 'running') execute function slow_claim()`,
    )
    const holder = await database.connect()
    await holder.query('select pg_advisory_lock(11)')
    const constraints = { gpu: 'a100' }
    await producer.enqueue(train, 'was being claimed', { constraints })
    await eventually('a claim is held up', async () => {
      const rows = await database.rows(
        `select from pg_locks where locktype = 'advisory' and not granted
           and database = (select oid from pg_database where datname = current_database())`,
      )
      return rows.length > 0
    })
    const change = worker.setProperties({})
    await eventually('the change is committed', async () => {
      const rows = await database.rows("select from longshore.workers where properties = '{}'")
      return rows.length === 1
    })
    const late = await producer.enqueue(train, 'late', { constraints })
    await holder.query('select pg_advisory_unlock(11)')
    await change
    expect(ran).toEqual(['was being claimed'])
    await producer.waitFor(await producer.enqueue(train, 'plain'))
    expect(ran).toEqual(['was being claimed', 'plain'])
    await worker.setProperties(constraints)
    await producer.waitFor(late)
    await database.rows('drop function slow_claim cascade')
  })

  it('[C11] keeps its properties through a later start, and the last change wins', async () => {
    const worker = await deployment.worker({ handlers: [train.handle(() => 1)] })
    await Promise.all([
      worker.setProperties({ gpu: 'a100' }),
      worker.setProperties({ gpu: 'h100' }),
      worker.setProperties({ region: 'eu' }),
    ])
    const row = { properties: { region: 'eu' }, constraint_tags: ['c:', 'c:region=eu'] }
    const rows = () => database.rows('select properties, constraint_tags from longshore.workers')
    expect(await rows()).toEqual([row])
    await worker.stop()
    await worker.start()
    expect(await rows()).toEqual([row])
    await Promise.all([worker.stop(), worker.setProperties({ gpu: 'b' })])
    await worker.setProperties({ gpu: 'c' })
    await worker.start()
    expect(await rows()).toEqual([{ properties: { gpu: 'c' }, constraint_tags: ['c:', 'c:gpu=c'] }])
  })

  it('[C9] keeps what it had when the change is refused', async () => {
    const worker = await deployment.worker({ handlers: [train.handle(() => 1)], properties: { gpu: 'a' } })
    await expect(worker.setProperties({ zone: 'b' })).rejects.toMatchObject({
      code: 'CONSTRAINT_INVALID',
      message: expect.stringContaining('property key "zone" is not declared'),
    })
    await expect(worker.setProperties({ gpu: '' })).rejects.toMatchObject({ code: 'CONSTRAINT_INVALID' })
    const rows = () => database.rows('select properties from longshore.workers')
    expect(await rows()).toEqual([{ properties: { gpu: 'a' } }])
    await worker.stop()
    await worker.start()
    expect(await rows()).toEqual([{ properties: { gpu: 'a' } }])
  })

  it('[C11] goes on with a job that it runs when it loses the property', async () => {
    const producer = deployment.producer()
    const begun = gate()
    const mayEnd = gate<string>()
    const worker = await deployment.worker({
      properties: { gpu: 'a' },
      handlers: [
        train.handle(() => {
          begun.open()
          return mayEnd.opened
        }),
      ],
    })
    const ref = await producer.enqueue(train, 1, { constraints: { gpu: 'a' } })
    await begun.opened
    await worker.setProperties({})
    mayEnd.open('done')
    expect(await producer.waitFor(ref)).toMatchObject({ result: 'done' })
  })
})

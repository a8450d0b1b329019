/** SQL functions given what no honest caller passes: refused with a message of ours, or done; and nothing is broken by it. */
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { defineTask, newJobId } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { always, label, SECRET } from '../support/hostile.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const task = defineTask<unknown>({ name: 'task', concurrencyPerKey: 5 })

interface Refusal {
  code: string
  message: string
  hint?: string
}

const call = (text: string, values: unknown[] = []): Promise<Refusal | undefined> =>
  database.rows(text, values).then(
    () => undefined,
    error => error as Refusal,
  )

const SOME = '0198c0de-0000-7000-8000-000000000001'

/** As JSON texts. */
const VALUES = [
  ...[
    'null',
    'true',
    'false',
    '0',
    '-0',
    '-1',
    '1',
    '1.5',
    '2147483648',
    '1e400',
    '-1e400',
    '1e-400',
    '[]',
    '{}',
  ],
  ...['"NaN"', '"infinity"', '"-infinity"', '"now"', '"epoch"', '"10000-01-01"', '"2030-02-30"', '"24:00"'],
  ...['"2030-01-01T00:00:00+99:00"', '"2030-01-01 12:00 Nowhere/Zone"', '"4714-11-24 BC"', '"9999-12-31"'],
  ...['""', '" "', '"\\n"', '"\\u007f"', '"\\u0085"', '[null]', '[[1]]', '{"a": {}}', '{"__proto__": "x"}'],
  ...[
    '{"gpu": ""}',
    '{"gpu": null}',
    '{"gpu": "\\u0001"}',
    '{"gpu": "a", "mem": "b", "region": "c", "x": "d"}',
  ],
  ...[
    `"${'x'.repeat(5000)}"`,
    `{"gpu": "${'é'.repeat(100)}"}`,
    '"halt"',
    '"continue"',
    `"${SOME}"`,
    `"{${SOME}}"`,
  ],
  '"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"',
]
const OPTIONS = [
  ...[
    'id',
    'queue',
    'tag',
    'constraints',
    'concurrencyKey',
    'priority',
    'delayMs',
    'runAt',
    'maxAttempts',
    'workflow',
  ],
  ...['onWorkflowFailure', 'traceparent', '__proto__', 'Priority'],
]

const value = fc.oneof(
  fc.constantFrom(...VALUES),
  label.map(text => JSON.stringify(text)),
)
const someOptions = fc
  .array(fc.tuple(fc.constantFrom(...OPTIONS), value), { minLength: 1, maxLength: 3 })
  .map(entries => `{${entries.map(([name, given]) => `${JSON.stringify(name)}: ${given}`).join(', ')}}`)

const expectOwn = (refusal: Refusal, about: string) => {
  expect(refusal.code, `${about}: ${refusal.message}`).toMatch(/^(22023|LS00\d)$/)
  expect(refusal.message, about).toMatch(/^longshore: /)
  expect(refusal.message.length, about).toBeLessThan(1000)
}

describe('what users call', () => {
  it('enqueue takes or refuses any options, and leaves the rest of the transaction alone', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const handled = new Set<string>()
    await deployment.worker({ handlers: [task.handle(({ id }) => void handled.add(id))] })
    const tx = await database.connect()
    await always(
      'enqueue from SQL',
      80,
      fc.asyncProperty(someOptions, fc.oneof(fc.constant('task'), label), async (options, name) => {
        const payload = JSON.stringify({ of: SECRET })
        await tx.query('begin')
        const { rows } = await tx.query("select longshore.enqueue('task') as id")
        await tx.query('savepoint before')
        const made = await tx
          .query('select longshore.enqueue($1, $2, $3) as id', [name, payload, options])
          .then(
            answer => String(answer.rows[0].id),
            async error => {
              expectOwn(error, options)
              expect(`${error.message} ${error.hint ?? ''}`).not.toContain(SECRET)
              await tx.query('rollback to before')
              return undefined
            },
          )
        await tx.query('commit')
        await producer.waitFor(String(rows[0].id))
        if (made) expect(await producer.explain(made)).toMatchObject({ id: made, task: name })
      }),
    )
  })

  it('change takes or refuses anything, and keeps the job sound', async () => {
    const producer = deployment.producer({ tasks: [task] })
    const { id } = await producer.enqueue(task, 1, { delay: '1d' })
    const names = ['priority', 'runAt', 'delayMs', 'constraintTag', 'state', '__proto__']
    const changes = fc
      .array(fc.tuple(fc.constantFrom(...names), value), { minLength: 1, maxLength: 3 })
      .map(entries => `{${entries.map(([name, given]) => `${JSON.stringify(name)}: ${given}`).join(', ')}}`)
    await always(
      'change from SQL',
      100,
      fc.asyncProperty(fc.oneof(changes, value), async change => {
        const refusal = await call('select longshore.change($1, $2)', [id, change])
        if (refusal) expectOwn(refusal, change)
        expect(await producer.get(id)).toMatchObject({ id, payload: 1 })
      }),
    )
  })

  it.each([
    ['select longshore.enqueue(null)', 'a task name has 1 to 200 characters'],
    ["select longshore.enqueue('t', null)", 'the payload of t must be JSON'],
    [`select longshore.enqueue('t', to_jsonb(repeat('x', 262143)))`, 'JSON of at most 262144 bytes'],
    [`select longshore.enqueue('t', '1e308')`, undefined],
    [`select longshore.enqueue('t', '"${'1'.repeat(400)}"')`, undefined],
    [`select longshore.enqueue('t', '1e309')`, 'the payload of t holds a number beyond 1.8e308'],
    [`select longshore.enqueue('t', '{"a": [{"b": -1e100000}]}')`, 'a number beyond 1.8e308'],
    ['select longshore.enqueue(repeat($$x$$, 1000000))', 'a task name has 1 to 200 characters'],
    ['select longshore.cancel(array[null, null]::uuid[])', undefined],
    [`select longshore.cancel('{{${SOME}},{${SOME}}}')`, undefined],
    ['select longshore.cancel_group(null)', undefined],
    ['select longshore.resume_workflow(null)', undefined],
    ['select longshore.resume_workflow(repeat($$x$$, 1000000))', undefined],
    ['select longshore.drain_worker(null, true)', undefined],
    ['select longshore.drain_worker(2147483647, null)', 'drain_worker needs true'],
    ['select longshore.explain(null)', undefined],
    ['select longshore.priority_of(null), longshore.run_at_of(null)', undefined],
    ['select longshore.priority_of(9007199254740991), longshore.run_at_of(9007199254740991)', undefined],
    ['select longshore.keep_logs(-1)', "today's are in use"],
    ['select longshore.prepare_history(2147483647)', 'too many, at most 366'],
    ['update longshore.settings set retention_days = -1', 'retention_days_check'],
    ["update longshore.settings set property_keys = '{a,a}'", 'property_keys_differ'],
  ])('%s', async (text, problem) => {
    const refusal = await call(text)
    if (problem === undefined) expect(refusal).toBeUndefined()
    else expect(refusal?.message).toContain(problem)
  })
})

/** What processes call. By type: what their arguments may be in the worst case. */
const HOSTILE: Readonly<Record<string, readonly (string | null)[]>> = {
  integer: [null, '0', '-1', '1', '2147483647', '-2147483648'],
  smallint: [null, '0', '-1', '32767', '-32768'],
  bigint: [null, '0', '-1', '9223372036854775807', '-9223372036854775808'],
  real: [null, 'NaN', 'Infinity', '-Infinity', '-0', '1e38'],
  boolean: [null, 'true', 'false'],
  text: [
    null,
    '',
    ' ',
    'task',
    'default',
    '{}',
    '{"a"',
    "'; --",
    '\u202e',
    'c:',
    'c:gpu=a',
    'x'.repeat(5000),
  ],
  uuid: [null, SOME, '00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff'],
  bytea: [null, '\\x', '\\x00', `\\x${'ab'.repeat(16)}`, `\\x${'00'.repeat(5000)}`],
  'integer[]': [null, '{}', '{null}', '{0,-1,2147483647}', '{{1,2},{3,4}}', '{1,1,1}'],
  'smallint[]': [null, '{}', '{null}', '{0,-1,32767}'],
  'bigint[]': [null, '{}', '{null}', '{0,-1,9223372036854775807}'],
  'boolean[]': [null, '{}', '{null,true}'],
  'text[]': [null, '{}', '{null}', '{""}', '{task}', '{"{}","*"}', '{{a,b},{c,d}}', '{default,default}'],
  'uuid[]': [null, '{}', '{null}', `{${SOME}}`, `{${SOME},${SOME},null}`],
  jsonb: ['null', '[]', '{}', '[null]', '[{}]', '"x"', '1e400', '[{"name": 5}]', '{"__proto__": 1}', null],
  json: ['null', '[]', '{}', '[null]', '[{}]', '"x"', '[{"job": 5}]', null],
  'longshore.edge_policy[]': [null, '{}', '{null}', '{fail,run,cancel}'],
  'longshore.job_state[]': [null, '{}', '{null}', '{ready,failed}'],
}

const CALLED = [
  ...[
    'add_to_group',
    'add_to_groups',
    'beat',
    'claim',
    'claim_these',
    'close_groups',
    'complete',
    'describe_lanes',
  ],
  ...[
    'eligible_workers',
    'enqueue_plain',
    'enqueue_jobs',
    'lanes_with_jobs',
    'make_lane',
    'promote_due',
    'read_lane',
  ],
  ...[
    'register_tasks',
    'register_worker',
    'relay_read',
    'repair_group',
    'repair_head',
    'repair_lease',
    'repair_limit',
  ],
  ...['repair_waiting', 'rescue', 'set_properties', 'settle_and_claim', 'sweep_groups', 'unregister_worker'],
  ...['watch_groups', 'write_logs', 'cancel', 'cancel_group', 'explain', 'resume_workflow', 'drain_worker'],
  ...[
    'hold_run',
    'read_runs',
    'read_payload',
    'read_parents',
    'read_group_of',
    'set_listening',
    'best_before',
    'drain_workers',
  ],
  ...[
    'lead_as_worker',
    'lead_as_relay',
    'resign',
    'raise_epoch',
    'note_generation',
    'note_built',
    'note_ended',
    'queues_with_jobs',
    'await_jobs',
  ],
  ...[
    'change_limits',
    'renew_limits',
    'forget_limits',
    'forget_heads',
    'forget_awaited',
    'forget_expired',
    'locks_held',
    'count_running',
    'set_asleep',
  ],
]

describe('what processes call', () => {
  it('answers or refuses whatever it is given, at once, and breaks nothing', async () => {
    const producer = deployment.producer({ tasks: [task] })
    await deployment.worker({ handlers: [task.handle(() => undefined)] })
    await database.rows("set statement_timeout = '5s'")
    const functions = await database.rows<{ name: string; types: string[] }>(
      `select proname as name, array(
         select format_type(t.oid, null) from unnest(proargtypes) with ordinality as a(oid, no)
         join pg_type t on t.oid = a.oid order by a.no) as types
       from pg_proc where pronamespace = 'longshore'::regnamespace and proname = any ($1)`,
      [CALLED],
    )
    expect(functions.map(({ name }) => name).sort()).toEqual([...CALLED].sort())
    const unknown = functions.flatMap(({ types }) => types).filter(type => !HOSTILE[type])
    expect(unknown).toEqual([])
    await always(
      'functions',
      10,
      fc.asyncProperty(fc.infiniteStream(fc.nat()), async numbers => {
        const draw = () => numbers.next().value as number
        for (const { name, types } of functions) {
          const given = types.map(type => {
            const values = HOSTILE[type] ?? []
            return { type, value: values[draw() % values.length] ?? null }
          })
          const text = `select longshore.${name}(${given.map(({ type }, n) => `$${n + 1}::${type}`).join(', ')})`
          const values = given.map(({ value }) => value)
          const refusal = await call(text, values)
          // Wrong data or a broken constraint: not a mistake in the function, nor a call without an end.
          if (refusal)
            expect(refusal.code, `${text} ${JSON.stringify(values)}: ${refusal.message}`).toMatch(
              /^(22|23|LS|40001|54)/,
            )
        }
        await producer.waitFor(await producer.enqueue(task, newJobId()))
      }),
    )
  })
})

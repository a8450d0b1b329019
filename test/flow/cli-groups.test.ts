/** The commands for jobs, groups and workflows, as a user runs them. */
import { describe, expect, it } from 'vitest'
import { defineTask, newJobId } from '../../src/index.ts'
import { workByHand } from '../support/by-hand.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string>({ name: 'step', retry: { maxAttempts: 1 } })

const longshore = (...args: string[]) => spawnCli(args, { DATABASE_URL: database.url }).ended

/** Claim one job, and let it fail. */
async function failOne(): Promise<string> {
  const worker = await workByHand(database, ['step'])
  const [claimed] = await worker.claim(1)
  if (!claimed) throw new Error('not claimed')
  const error = { code: 'HANDLER_FAILED', message: 'the paper ran out' }
  await worker.settleOthers([{ id: claimed.id, token: claimed.lease_token, outcome: 'failed', error }])
  return claimed.id
}

describe('longshore explain and cancel', () => {
  it('[S16] explain tells what keeps a job, in lines and as JSON; cancel ends it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const job = await producer.enqueue(step, 'a', { runAt: new Date('2100-01-01') })
    const [lines, json] = await Promise.all([
      longshore('explain', job.id.toUpperCase()),
      longshore('explain', job.id, '--json'),
    ])
    expect(lines.stdout).toBe(
      `job ${job.id} of task step is scheduled\n- it is due at 2100-01-01T00:00:00.000Z\n- no worker is alive: start one with a handler for task step, createWorker({ handlers }) or \`longshore worker <module>\`\n`,
    )
    expect(lines.code).toBe(0)
    expect(JSON.parse(json.stdout)).toEqual(JSON.parse(JSON.stringify(await producer.explain(job))))
    const cancelled = await longshore('cancel', job.id)
    expect(cancelled.stdout).toBe(`job ${job.id}: cancelled\n`)
    expect(await producer.get(job)).toMatchObject({ state: 'cancelled' })
  })

  it('[S16] end with 1 for a job or group that is not there, and with 2 for what is no id', async () => {
    const id = newJobId()
    const [explain, cancel, groups, noJob, noGroup, noLimit, none] = await Promise.all([
      longshore('explain', id),
      longshore('cancel', id),
      longshore('groups', id),
      longshore('explain', '42'),
      longshore('groups', '42'),
      longshore('groups', '--limit', '0'),
      longshore('groups', '--cancel'),
    ])
    for (const { code, stderr } of [explain, cancel]) {
      expect(stderr).toContain(`there is no job ${id} in schema "longshore"`)
      expect(code).toBe(1)
    }
    expect(groups.stderr).toContain(
      `there is no group ${id} in schema "longshore": \`longshore groups --all\``,
    )
    expect(groups.code).toBe(1)
    expect(noJob.stderr).toContain('a job id is a UUID like')
    expect(noGroup.stderr).toContain('a group id is a UUID like')
    expect(noLimit.stderr).toContain('--limit must be a whole number from 1 to 10000; got 0')
    expect(none.stderr).toContain('longshore groups <group-id> --cancel')
    expect([noJob, noGroup, noLimit, none].map(({ code }) => code)).toEqual([2, 2, 2, 2])
  })
})

describe('longshore groups', () => {
  it('lists what is unfinished, newest first; shows one with its jobs; cancels it', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const old = producer.group({ name: 'old' })
    const bad = old.add(step, 'bad')
    const child = old.add(step, 'child', { after: bad })
    const later = old.add(step, 'later', { delay: '1h' })
    await old.submit()
    expect(await failOne()).toBe(bad.id)
    const young = producer.group()
    young.add(step, 'a')
    await young.submit()
    const gone = producer.group({ name: 'gone' })
    gone.add(step, 'a')
    await gone.submit()
    await producer.cancelGroup(gone)

    const [list, all, one, json] = await Promise.all([
      longshore('groups'),
      longshore('groups', '--all', '--json'),
      longshore('groups', old.id),
      longshore('groups', old.id, '--json', '--limit', '1'),
    ])
    const [youngLine = '', oldLine = ''] = list.stdout.split('\n')
    expect(youngLine).toMatch(new RegExp(`^${young.id}: queued; 1 ready; submitted \\d+[sm] ago$`))
    expect(oldLine).toContain(`${old.id} old: dispatching; 1 scheduled, 1 failed, 1 dependency_failed; `)
    expect(list.stdout).not.toContain(gone.id)
    const listed = JSON.parse(all.stdout) as { groups: { id: string; state: string }[] }
    expect(listed.groups.map(({ id }) => id)).toEqual([gone.id, young.id, old.id])
    expect(listed.groups[0]).toMatchObject({ state: 'cancelled', counts: { cancelled: 1 } })

    const lines = one.stdout.split('\n')
    expect(lines[0]).toContain(`${old.id} old: dispatching; 1 scheduled, `)
    expect(lines).toContain('  1 dependency_failed of step')
    expect(lines).toContain(`  ${bad.id} step, failed: the paper ran out`)
    expect(one.stdout).toContain(`  ${later.id} step, scheduled: is due at `)
    expect(one.stdout).toContain(
      `  ${child.id} step, dependency_failed: job ${bad.id}, which it was to run after`,
    )
    expect(JSON.parse(json.stdout)).toMatchObject({
      group: { id: old.id, name: 'old' },
      tasks: expect.arrayContaining([{ state: 'failed', task: 'step', count: 1 }]),
      jobs: [{ id: bad.id, state: 'failed', reason: 'the paper ran out' }],
    })

    const cancel = await longshore('groups', old.id, '--cancel')
    expect(cancel.stdout).toBe(`group ${old.id}: cancelled, nothing of it is left\n`)
    await producer.cancelGroup(young)
    const [again, rest] = await Promise.all([
      longshore('groups', old.id, '--cancel', '--json'),
      longshore('groups'),
    ])
    expect(JSON.parse(again.stdout)).toMatchObject({ id: old.id, answer: 'cancelled' })
    expect(rest.stdout).toBe('no group is unfinished; --all lists those that have ended\n')
  })
})

describe('longshore workflows', () => {
  it('[W2] lists who has the turn, halted ones first, and lets a halted one go on', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const flowing = await producer.enqueueMany(step, ['a', 'b', 'c'], { workflow: 'flowing', delay: '1h' })
    const halting = { workflow: 'stopped', onWorkflowFailure: 'halt' } as const
    const bad = await producer.enqueue(step, 'bad', halting)
    const next = await producer.enqueue(step, 'next', halting)
    expect(await failOne()).toBe(bad.id)
    const [list, json, nothing, unnamed] = await Promise.all([
      longshore('workflows'),
      longshore('workflows', '--json', '--limit', '1'),
      longshore('workflows', 'nothing'),
      longshore('workflows', '--resume'),
    ])
    expect(list.stdout).toBe(
      `stopped: halted by the failure of job ${bad.id} (the paper ran out); no job has the turn; 1 waiting; --resume lets it go on\n` +
        `flowing: goes on; job ${flowing[0]?.id} of task step has the turn, scheduled; 2 waiting\n`,
    )
    expect(JSON.parse(json.stdout)).toEqual({
      schema: 'longshore',
      workflows: [
        { key: 'stopped', waiting: 1, holder: null, haltedBy: { id: bad.id, error: 'the paper ran out' } },
      ],
    })
    expect(nothing.stdout).toBe('workflow nothing has no jobs and is not halted\n')
    expect(unnamed.stderr).toContain('name the workflow to resume: longshore workflows <key> --resume')
    expect(unnamed.code).toBe(2)

    const resumed = await longshore('workflows', 'stopped', '--resume')
    expect(resumed.stdout).toBe(
      `workflow stopped goes on\nstopped: goes on; job ${next.id} of task step has the turn, ready; 0 waiting\n`,
    )
    expect((await longshore('workflows', 'stopped', '--resume')).stdout).toContain(
      'workflow stopped was not halted, nothing was changed\n',
    )
  })
})

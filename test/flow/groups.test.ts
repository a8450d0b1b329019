import { describe, expect, it } from 'vitest'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<string, string, unknown, string>({ name: 'step', retry: { attempts: 1 } })

describe('groups', () => {
  it('[S2] makes what depends on nothing ready, and the rest waiting', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const group = producer.group({ name: 'chain' })
    const first = group.add(step, 'a')
    const second = group.add(step, 'b', { after: first })
    expect(await group.submit()).toEqual({ id: group.id, isNew: true })
    expect(await producer.get(first)).toMatchObject({ state: 'ready' })
    expect(await producer.get(second)).toMatchObject({ state: 'waiting' })
    expect(await producer.getGroup(group)).toMatchObject({
      state: 'queued',
      counts: { ready: 1, waiting: 1 },
    })
  })

  it('[S3] a diamond runs in order', async () => {
    const producer = deployment.producer({ tasks: [step] })
    const ran: string[] = []
    await deployment.worker({
      handlers: [
        step.handle(async (job, ctx) => {
          ran.push(job.payload)
          return `${job.payload}:${(await ctx.parents.of(step)).map(parent => parent.result).join('+')}`
        }),
      ],
    })
    const group = producer.group({ name: 'diamond' })
    const top = group.add(step, 'top')
    const left = group.add(step, 'left', { after: top })
    const right = group.add(step, 'right', { after: top })
    const bottom = group.add(step, 'bottom', { after: [left, right] })
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'complete', counts: { succeeded: 4 } })
    expect(ran[0]).toBe('top')
    expect(ran[3]).toBe('bottom')
    expect(await producer.get(bottom)).toMatchObject({ result: 'bottom:left:top:+right:top:' })
  })

  it('[S4] failure spreads by policy', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await deployment.worker({
      handlers: [
        step.handle(job => {
          if (job.payload === 'bad') throw new Error('no')
          return job.payload
        }),
      ],
    })
    const group = producer.group()
    const bad = group.add(step, 'bad')
    const failed = group.add(step, 'b', { after: bad })
    const deeper = group.add(step, 'c', { after: failed })
    const anyway = group.add(step, 'd', { after: { job: deeper, onFailure: 'run' } })
    const cancelled = group.add(step, 'e', { after: { job: bad, onFailure: 'cancel' } })
    const other = group.add(step, 'f')
    await group.submit()
    expect(await producer.waitForGroup(group)).toMatchObject({ state: 'failed' })
    const states = await Promise.all(
      [bad, failed, deeper, anyway, cancelled, other].map(async job => (await producer.get(job))?.state),
    )
    expect(states).toEqual([
      'failed',
      'dependency_failed',
      'dependency_failed',
      'succeeded',
      'cancelled',
      'succeeded',
    ])
  })
})

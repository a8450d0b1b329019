/** The users of Redis that the guide shows: each may do its own work there, and nothing else. */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, describe, expect, inject, it } from 'vitest'
import type { JobId } from '../../src/job/job-id.ts'
import { rootKey } from '../../src/redis/names.ts'
import { type QueueIndex, queueIndex, START } from '../../src/redis/queue-index.ts'
import { allScripts, scriptNamed } from '../../src/redis/scripts.ts'
import { dropRedisUsers, makeRedisUsers, type RedisRole, usersInGuide } from '../support/acl.ts'
import { job, laneFacts, openQueue, QUEUE } from '../support/redis.ts'

const DEPLOYMENT = `acl${process.pid}`
const ROLES: readonly RedisRole[] = ['producer', 'worker', 'relay']
let urls: Record<RedisRole, string>
const clients = new Map<RedisRole, Redis>()
let admin: Redis

beforeAll(async () => {
  urls = await makeRedisUsers(inject('redisUrl'), DEPLOYMENT)
  admin = new Redis(inject('redisUrl'))
  for (const role of ROLES) clients.set(role, new Redis(urls[role], { enableReadyCheck: false }))
})
afterAll(async () => {
  for (const client of clients.values()) client.disconnect()
  for (const key of await admin.keys(`longshore:${DEPLOYMENT}:*`)) await admin.del(key)
  admin.disconnect()
  await dropRedisUsers(urls, inject('redisUrl'))
})

/** Done, or the first word of the refusal. */
const told = (role: RedisRole, command: string, ...args: string[]) =>
  (clients.get(role) as Redis).call(command, ...args).then(
    () => 'done',
    (error: Error) =>
      /NOPERM|user executing the script|ACL failure/.test(error.message) ? 'NOPERM' : error.message,
  )

it('has a user for each kind of process, and no command that Redis calls dangerous', async () => {
  expect(usersInGuide().map(({ role }) => role)).toEqual(ROLES)
  const dangerous = new Set((await admin.call('ACL', 'CAT', 'dangerous')) as string[])
  for (const { rules } of usersInGuide()) {
    const commands = rules.filter(rule => rule.startsWith('+')).map(rule => rule.slice(1).split('|')[0] ?? '')
    expect(commands.filter(command => dangerous.has(command))).toEqual([])
    expect(rules.filter(rule => rule.startsWith('+@'))).toEqual([])
  }
})

/** Which scripts each calls. A relay calls those of the others to look at, and its own. */
const SCRIPTS: Record<RedisRole, readonly string[]> = {
  producer: ['hint'],
  worker: ['hint', 'register', 'unregister', 'take', 'take_offered', 'put_back'],
  relay: [...allScripts().keys()],
}

it.each(ROLES)('the %s may do whatever one of its scripts does, on whichever way', role => {
  const rules = usersInGuide().find(user => user.role === role)?.rules ?? []
  const may = rules.filter(rule => rule.startsWith('+')).map(rule => rule.slice(1))
  for (const name of SCRIPTS[role]) {
    const { text } = scriptNamed(name)
    const does = [...text.matchAll(/\b(?:call|bulk|gather)\('([A-Z]+)'/g)].map(([, command]) =>
      String(command).toLowerCase(),
    )
    expect(does.length).toBeGreaterThan(0)
    expect(
      does.filter(command => !may.includes(command)),
      name,
    ).toEqual([])
  }
})

describe.each(ROLES)('the %s', role => {
  const own = rootKey(DEPLOYMENT, QUEUE)
  it.each([
    ['FLUSHALL'],
    ['FLUSHDB'],
    ['CONFIG', 'GET', '*'],
    ['CONFIG', 'SET', 'maxmemory', '1'],
    ['KEYS', '*'],
    ['SCAN', '0'],
    ['INFO'],
    ['ACL', 'LIST'],
    ['CLIENT', 'LIST'],
    ['SCRIPT', 'FLUSH'],
    ['SHUTDOWN', 'NOSAVE'],
    ['MONITOR'],
    ['GET', own],
    ['HGET', rootKey('another', QUEUE), 'generation'],
    ['HSET', `${rootKey('another', QUEUE)}:g:jobs`, 'a', 'b'],
    ['PUBLISH', 'longshore:another:beat', ''],
    ['SUBSCRIBE', 'longshore:another:beat'],
    ['EVAL', "return redis.call('HGET', KEYS[1], 'a')", '1', rootKey('another', QUEUE)],
    ['EVAL', "return redis.call('HGET', ARGV[1], 'a')", '1', own, rootKey('another', QUEUE)],
    ['EVAL', "return redis.call('FLUSHALL')", '1', own],
  ])('is refused %s %s', async (command, ...args) => {
    expect(await told(role, command, ...args)).toBe('NOPERM')
  })
})

it('only the relay may write the head of a queue, and so do the steps of the relay', async () => {
  const root = rootKey(DEPLOYMENT, QUEUE)
  const runner = (role: RedisRole) => {
    const client = clients.get(role) as Redis
    return {
      evalsha: (sha: string, keys: number, ...args: string[]) => client.evalsha(sha, keys, ...args),
      eval: (text: string, keys: number, ...args: string[]) => client.eval(text, keys, ...args),
    }
  }
  const nothing = { store: undefined as never, client: undefined as never }
  const queue = await openQueue(nothing, DEPLOYMENT, { runner: runner('relay') })
  expect((await queue.refill(queue.step(), laneFacts(1), START, null, [])).code).toBe('OK')
  const step = queue.step()
  const relayed = (index: QueueIndex): Readonly<Record<string, () => Promise<unknown>>> => ({
    place: () => index.place(step, 'relay', [job('a')]),
    remove: () => index.remove(step, ['a' as JobId]),
    refill: () => index.refill(step, laneFacts(2), START, null, []),
    setSlots: () => index.setSlots(step, 1, '1', null),
    begin: () =>
      index.beginGeneration('2', 'g2', { width: 0, strategy: 'random' }, { depth: 10, window: 10 }),
  })
  for (const role of ['producer', 'worker'] as const) {
    for (const [name, call] of Object.entries(relayed(queueIndex(runner(role), DEPLOYMENT, QUEUE))))
      await expect(call(), `${role} ${name}`).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
    expect(await told(role, 'HSET', root, 'seq', '9')).toBe('NOPERM')
    expect(await told(role, 'PUBLISH', `longshore:${DEPLOYMENT}:beat`, '')).toBe('NOPERM')
  }
  expect((await queue.place(step, 'relay', [job('a')])).code).toBe('OK')

  // A producer tells of jobs, and cannot take any.
  const hinting = queueIndex(runner('producer'), DEPLOYMENT, QUEUE)
  expect(await hinting.hint([job('b')])).toMatchObject({ placed: 1 })
  const taken = `${root}:g1:taken`
  expect(await told('producer', 'HSET', taken, 'id', 'x')).toBe('NOPERM')
  expect(await told('producer', 'HGET', taken, 'id')).toBe('done')
})

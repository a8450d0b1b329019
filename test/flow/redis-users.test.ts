/** The users of Redis that the guide shows: each may do its own work there, and nothing else. */
import { Redis } from 'ioredis'
import { afterAll, beforeAll, expect, inject, it } from 'vitest'
import type { JobId } from '../../src/job/job-id.ts'
import { beatChannel, bellChannel, hintChannel, lowChannel, rootKey } from '../../src/redis/names.ts'
import { openRedis, type RedisStore } from '../../src/redis/open-redis.ts'
import { type QueueIndex, queueIndex, START } from '../../src/redis/queue-index.ts'
import { allScripts, scriptNamed } from '../../src/redis/scripts.ts'
import { dropRedisUsers, makeRedisUsers, type RedisRole, usersInGuide } from '../support/acl.ts'
import { job, laneFacts, openQueue, QUEUE } from '../support/redis.ts'
import { holds, ROLE_ROWS } from '../support/role-table.ts'
import { eventually } from '../support/signals.ts'

const DEPLOYMENT = `acl${process.pid}`
const ROLES: readonly RedisRole[] = ['producer', 'worker', 'relay']
let urls: Record<RedisRole, string>
const clients = new Map<RedisRole, Redis>()
const stores = new Map<RedisRole, RedisStore>()
let admin: Redis

beforeAll(async () => {
  urls = await makeRedisUsers(inject('redisUrl'), DEPLOYMENT)
  admin = new Redis(inject('redisUrl'))
  for (const role of ROLES) {
    clients.set(role, new Redis(urls[role], { enableReadyCheck: false }))
    const store = openRedis(urls[role], () => undefined, { mayLoad: role === 'relay' })
    stores.set(role, store)
    await eventually(`the ${role} is connected`, async () => store.isConnected())
  }
  for (const { text } of allScripts().values()) await admin.script('LOAD', text)
})
afterAll(async () => {
  for (const client of clients.values()) client.disconnect()
  for (const store of stores.values()) store.close()
  for (const key of await admin.keys(`longshore:*${DEPLOYMENT}:*`)) await admin.del(key)
  admin.disconnect()
  await dropRedisUsers(urls, inject('redisUrl'))
})

const isRefusal = (error: Error) => /NOPERM|user executing the script|ACL failure/.test(error.message)

/** The attempts that ended otherwise. What Redis finds wrong with a command that it was ready to run counts as done. */
const unlike = async (role: RedisRole, may: boolean, attempts: readonly (readonly string[])[]) => {
  const wrong: string[] = []
  const listener = new Redis(urls[role], { enableReadyCheck: false })
  try {
    for (const [command = '', ...args] of attempts) {
      // Who listens can do nothing else on that connection.
      const client = /SUBSCRIBE$|MONITOR/.test(command) ? listener : (clients.get(role) as Redis)
      const isDone = await client.call(command, ...args).then(
        () => true,
        (error: Error) => !isRefusal(error),
      )
      if (isDone !== may) wrong.push([command, ...args].join(' ').slice(0, 100))
    }
  } finally {
    listener.disconnect()
  }
  return wrong
}

type Attempts = (deployment: string) => readonly (readonly string[])[]

/** All of them are done, or refused, as the table of roles says. */
const tries = (role: RedisRole, what: string, attempts: Attempts) =>
  holds('Redis', role, what, async () => {
    const { may } =
      ROLE_ROWS.find(row => row.store === 'Redis' && row.role === role && row.what === what) ?? {}
    expect(await unlike(role, may === true, attempts(DEPLOYMENT))).toEqual([])
  })

const root = (deployment: string) => rootKey(deployment, QUEUE)

/** One of each kind of key that the scripts make. */
const keysOf = (deployment: string) => [
  root(deployment),
  ...new Set(
    [...allScripts().values()]
      .flatMap(({ text }) => [...text.matchAll(/prefix \.\. '([a-z-]+:?)'/g)])
      .map(([, name = '']) => `${root(deployment)}:g1:${name.endsWith(':') ? `${name}1` : name}`),
  ),
]
const channelsOf = (deployment: string) =>
  [beatChannel, lowChannel, hintChannel, (of: string) => bellChannel(of, 1)].map(of => of(deployment))

const reads = (deployment: string) =>
  keysOf(deployment).flatMap(key => [
    ['HGETALL', key],
    ['HMGET', key, 'generation', 'seq'],
    ['HGET', key, 'a'],
    ['HLEN', key],
    ['ZRANGE', key, '0', '-1'],
    ['ZCARD', key],
    ['SMEMBERS', key],
    ['EXISTS', key],
    ['TYPE', key],
    ['DUMP', key],
    ['SORT', key],
  ])
const writes = (deployment: string) =>
  keysOf(deployment).flatMap(key => [
    ['HSET', key, 'a', 'b'],
    ['ZADD', key, '1', 'a'],
    ['SADD', key, 'a'],
    ['DEL', key],
    ['UNLINK', key],
    ['EXPIRE', key, '1'],
    ['RENAME', key, `${key}:other`],
  ])
const listens = (channels: readonly string[]) => [
  ...channels.flatMap(channel => [
    ['SUBSCRIBE', channel],
    ['PSUBSCRIBE', `${channel}*`],
    ['SSUBSCRIBE', channel],
  ]),
  ['PSUBSCRIBE', '*'],
]
/** One that would have no end, but for a second in which a test can fail. */
const ENDLESS = 'for n = 1, 100000000 do end'
const ownScripts = (deployment: string) => [
  ['EVAL', ENDLESS, '1', root(deployment)],
  ['EVAL', ENDLESS, '0'],
  ['EVAL_RO', ENDLESS, '1', root(deployment)],
  ['FUNCTION', 'LOAD', `#!lua name=endless\nredis.register_function('endless', function() ${ENDLESS} end)`],
  ['FCALL', 'endless', '1', root(deployment)],
]
const calls = (deployment: string, ...names: string[]) =>
  names.map(name => ['EVALSHA', scriptNamed(name).sha, '1', root(deployment)])
const publishes = (channels: readonly string[]) => channels.map(channel => ['PUBLISH', channel, ''])

tries('producer', 'tell the relay which jobs it has made ready', of => publishes([hintChannel(of)]))
tries('producer', 'read any key: ready jobs, jobs that were taken, queues, workers, limits', reads)
tries('producer', 'write any key', writes)
tries('producer', 'run a script, neither one that is loaded nor one of its own', of => [
  ...calls(of, ...allScripts().keys()),
  ...ownScripts(of),
  ['SCRIPT', 'LOAD', ENDLESS],
])
tries('producer', 'listen to any channel, not even to the hints of other producers', of =>
  listens(channelsOf(of)),
)
tries('producer', 'ring a worker, or speak for a relay', of =>
  publishes(channelsOf(of).filter(channel => channel !== hintChannel(of))),
)

tries('worker', 'run the scripts that the relay has loaded', of => calls(of, 'probe'))
tries('worker', 'listen to its bell and to the beat of the relay', of => [
  ['SUBSCRIBE', bellChannel(of, 1), beatChannel(of)],
])
tries('worker', 'run or load a script of its own, so none without an end', of => [
  ...ownScripts(of),
  ['SCRIPT', 'LOAD', ENDLESS],
])
tries('worker', 'write the head of a queue, as every step of the relay does', of => [
  ['HSET', root(of), 'seq', '9'],
  ['HINCRBY', root(of), 'epoch', '1'],
  ['DEL', root(of)],
])
tries('worker', 'tell workers that it leads', of => publishes([beatChannel(of)]))
tries('worker', 'listen to the hints of producers', of => [
  ['SUBSCRIBE', hintChannel(of)],
  ['PSUBSCRIBE', `longshore:${of}:*`],
])

tries('relay', 'load scripts and run them', of => [
  ['SCRIPT', 'LOAD', scriptNamed('probe').text],
  ...calls(of, 'probe'),
])
tries('relay', 'listen to the hints of producers, tell workers that it leads, and ring them', of => [
  ['SUBSCRIBE', hintChannel(of), lowChannel(of)],
  ...publishes([beatChannel(of), bellChannel(of, 1)]),
])
tries('relay', 'run a script that is not loaded', ownScripts)

for (const role of ROLES)
  tries(role, 'reach keys and channels of another deployment', of => {
    const other = `another-${of}`
    return [
      ...[reads, writes].flatMap(attempts => attempts(other)),
      ...publishes(channelsOf(other)),
      ...listens(channelsOf(other)),
      ...calls(other, 'probe'),
    ]
  })
for (const role of ROLES)
  tries(role, 'administer Redis, or look around in it', () => [
    ['FLUSHALL'],
    ['FLUSHDB'],
    ['CONFIG', 'GET', '*'],
    ['CONFIG', 'SET', 'maxmemory', '1'],
    ['KEYS', '*'],
    ['SCAN', '0'],
    ['RANDOMKEY'],
    ['INFO'],
    ['ACL', 'LIST'],
    ['ACL', 'SETUSER', 'default', 'off'],
    ['CLIENT', 'LIST'],
    ['PUBSUB', 'CHANNELS'],
    ['SCRIPT', 'FLUSH'],
    ['SCRIPT', 'KILL'],
    ['SLOWLOG', 'GET'],
    ['SHUTDOWN', 'NOSAVE'],
    ['MONITOR'],
  ])

it('has a user for each kind of process, and no command that Redis calls dangerous', async () => {
  expect(usersInGuide().map(({ role }) => role)).toEqual(ROLES)
  const dangerous = new Set((await admin.call('ACL', 'CAT', 'dangerous')) as string[])
  for (const { rules } of usersInGuide()) {
    const commands = rules.filter(rule => rule.startsWith('+')).map(rule => rule.slice(1))
    const names = commands.flatMap(command => [command, command.split('|')[0] ?? ''])
    expect(names.filter(name => dangerous.has(name))).toEqual([])
    expect(rules.filter(rule => rule.startsWith('+@'))).toEqual([])
  }
})

it('[X15] a user that could do more before can do no more than the guide says', async () => {
  const name = `before-${DEPLOYMENT}`
  const shown = async () => JSON.stringify(await admin.call('ACL', 'GETUSER', name))
  const rules = usersInGuide().find(({ role }) => role === 'producer')?.rules ?? []
  await admin.call('ACL', 'SETUSER', name, ...rules)
  const alone = await shown()
  await admin.call('ACL', 'SETUSER', name, 'allkeys', 'allchannels', '+@all', '(+eval ~*)')
  await admin.call('ACL', 'SETUSER', name, ...rules)
  expect(await shown()).toBe(alone)
  await admin.call('ACL', 'DELUSER', name)
})

/** Which scripts each calls. A relay calls those of the others to look at, and its own. */
const SCRIPTS = {
  worker: ['hint', 'register', 'unregister', 'take', 'take_offered', 'put_back', 'probe'],
  relay: [...allScripts().keys()],
} as const

it.each(['worker', 'relay'] as const)(
  'the %s may do whatever one of its scripts does, on whichever way',
  role => {
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
  },
)

it('[X15] only the relay may take the steps of the relay; a producer may hint only, and not by a script', async () => {
  const indexOf = (role: RedisRole) => queueIndex(stores.get(role) as RedisStore, DEPLOYMENT, QUEUE)
  const nothing = { store: undefined as never, client: undefined as never }
  const queue = await openQueue(nothing, DEPLOYMENT, { runner: stores.get('relay') as RedisStore })
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
    for (const [name, call] of Object.entries(relayed(indexOf(role))))
      await expect(call(), `${role} ${name}`).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
  }
  expect((await queue.place(step, 'relay', [job('a')])).code).toBe('OK')
  expect(await indexOf('worker').hint([job('b')])).toMatchObject({ placed: 1 })
  await expect(indexOf('producer').hint([job('c')])).rejects.toMatchObject({ code: 'PERMISSION_DENIED' })
  expect(await stores.get('producer')?.publish(hintChannel(DEPLOYMENT), '')).toBe(0)
})

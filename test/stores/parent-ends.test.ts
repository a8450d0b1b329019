import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { dirname } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { isLinux, isRunning, until } from './machine.ts'
import { type Parent, spawnParent } from './spawn-parent.ts'

vi.setConfig({ testTimeout: 30_000 })

async function expectNothingLeft({ postgres, redis }: Parent): Promise<void> {
  await until(() => !isRunning(postgres.pid) && !isRunning(redis.pid))
  await until(() => !existsSync(dirname(postgres.dataDir)))
  await until(() => redis.dataDir === undefined || !existsSync(dirname(redis.dataDir)))
}

function guardiansOf(parent: number): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number)
    .filter(pid => {
      try {
        return readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ')[1] === String(parent)
      } catch {
        return false
      }
    })
}

describe('when the parent is gone', () => {
  it('no server, guardian or temporary folder is left after its SIGKILL', async () => {
    const parent = await spawnParent()
    expect(isRunning(parent.postgres.pid)).toBe(true)
    expect(isRunning(parent.redis.pid)).toBe(true)
    const guardians = isLinux ? guardiansOf(parent.process.pid as number) : []
    parent.process.kill('SIGKILL')
    await expectNothingLeft(parent)
    await until(() => guardians.every(pid => !isRunning(pid)))
  })

  it('nothing is left when it ends by itself without stop()', async () => {
    await expectNothingLeft(await spawnParent({ andThen: 'leave' }))
  })

  it('a signal to its whole process group leaves nothing either, nor does SIGKILL of the guardians', async () => {
    const parents = await Promise.all([spawnParent({ spawn: { detached: true } }), spawnParent()])
    const [signalled, orphaned] = parents.map(parent => parent.process.pid as number) as [number, number]
    process.kill(-signalled, 'SIGINT')
    if (isLinux) for (const pid of guardiansOf(orphaned)) process.kill(pid, 'SIGKILL')
    else process.kill(orphaned, 'SIGKILL')
    for (const parent of parents) await expectNothingLeft(parent)
  })
})

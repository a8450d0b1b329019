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

  it('no server and no temporary folder is left when it ends by itself without stop()', async () => {
    const parent = await spawnParent({ andThen: 'leave' })
    await expectNothingLeft(parent)
  })

  it('a signal to its whole process group does not leave anything either', async () => {
    const parent = await spawnParent({ spawn: { detached: true } })
    process.kill(-(parent.process.pid as number), 'SIGINT')
    await expectNothingLeft(parent)
  })

  it.skipIf(!isLinux)('a killed guardian takes its server along (reads /proc, needs Linux)', async () => {
    const parent = await spawnParent()
    for (const pid of guardiansOf(parent.process.pid as number)) process.kill(pid, 'SIGKILL')
    await expectNothingLeft(parent)
    expect(parent.process.exitCode).toBeNull()
  })
})

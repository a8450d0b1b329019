/** Owns the stretch of a measurement that counts: its time, the CPU and WAL used in it, profiles where asked for. */
import { nowUs } from '../jobs/clock.ts'
import { type Cores, watchCpu } from './cpu.ts'
import type { Setting } from './setting.ts'
import { readWrites, type Writes } from './writes.ts'

export interface Stretch {
  seconds: number
  cores: Cores
  writes: Writes
}

export interface TimedStretch {
  end(): Promise<Stretch>
}

export async function beginStretch(setting: Setting, workerPids: readonly number[]): Promise<TimedStretch> {
  await setting.profile?.begin()
  const before = await readWrites(setting.database)
  const coresSince = watchCpu(setting.servers, workerPids)
  const startUs = nowUs()
  return {
    async end() {
      const seconds = (nowUs() - startUs) / 1e6
      const cores = coresSince()
      const after = await readWrites(setting.database)
      await setting.profile?.end()
      const writes = {
        walBytes: after.walBytes - before.walBytes,
        transactions: after.transactions - before.transactions,
      }
      return { seconds, cores, writes }
    },
  }
}

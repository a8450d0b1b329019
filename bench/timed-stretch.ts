/** Owns the stretch of a measurement that counts: its time, the CPU used in it, profiles where asked for. */
import { nowUs } from './clock.ts'
import { type Cores, watchCpu } from './cpu.ts'
import type { Setting } from './scenario.ts'

export interface TimedStretch {
  end(): Promise<{ seconds: number; cores: Cores }>
}

export async function beginStretch(setting: Setting, workerPids: readonly number[]): Promise<TimedStretch> {
  await setting.profile?.begin()
  const coresSince = watchCpu(setting.servers, workerPids)
  const startUs = nowUs()
  return {
    async end() {
      const seconds = (nowUs() - startUs) / 1e6
      const cores = coresSince()
      await setting.profile?.end()
      return { seconds, cores }
    },
  }
}

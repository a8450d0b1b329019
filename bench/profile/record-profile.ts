/** Owns taking a CPU profile of this very process, from a moment on, so that loading and compiling code stay out of it. */
import { writeFileSync } from 'node:fs'
import { Session } from 'node:inspector/promises'

export interface RecordedProfile {
  /** Writes a .cpuprofile, which Chrome's developer tools open too. */
  stop(file: string): Promise<void>
}

const SAMPLE_EVERY_US = 200

export async function startProfile(): Promise<RecordedProfile> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.setSamplingInterval', { interval: SAMPLE_EVERY_US })
  await session.post('Profiler.start')
  return {
    async stop(file) {
      const { profile } = await session.post('Profiler.stop')
      session.disconnect()
      writeFileSync(file, JSON.stringify(profile))
    },
  }
}

/** Owns the search for a Redis or Valkey that is installed on this machine. */
import { findOnPath } from '../find-on-path.ts'
import type { Guardian } from '../guardian.ts'
import type { Environment } from '../store.ts'
import { type NativeRedis, tryProgram } from './program.ts'

export async function findLocal(
  guardian: Guardian,
  env: Environment,
): Promise<NativeRedis | { missing: string }> {
  const refused: string[] = []
  for (const name of ['redis-server', 'valkey-server']) {
    for (const command of await findOnPath(name, env)) {
      try {
        return await tryProgram(guardian, command)
      } catch (error) {
        refused.push((error as Error).message)
      }
    }
  }
  return { missing: refused.length > 0 ? refused.join('; ') : 'no redis-server or valkey-server on PATH' }
}

/** Owns the search for a program on PATH, without a shell. */
import { access, constants } from 'node:fs/promises'
import { delimiter, join } from 'node:path'
import type { Environment } from './store.ts'

/** All programs of a name, in the order of PATH. Links are kept: Redis looks at the name it is called by. */
export async function findOnPath(name: string, env: Environment): Promise<string[]> {
  const found: string[] = []
  for (const folder of (env['PATH'] ?? '').split(delimiter).filter(Boolean)) {
    const file = join(folder, name)
    const isProgram = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    )
    if (isProgram) found.push(file)
  }
  return found
}

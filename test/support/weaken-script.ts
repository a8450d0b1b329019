/** Red tests: the scripts without one of their guards, built for the test alone. A guard that nothing misses is none. */
import { createHash } from 'node:crypto'
import { allScripts, type ScriptRunner } from '../../src/redis/scripts.ts'

/** What to take out of every script that holds it, and what to put in its place. */
export interface ScriptWeakness {
  remove: string
  replacement?: string
}

const sha1 = (text: string) => createHash('sha1').update(text).digest('hex')

/** Runs the scripts of the package, weakened. */
export function weakenedRunner(
  runner: ScriptRunner,
  weaknesses: ScriptWeakness | readonly ScriptWeakness[],
): ScriptRunner {
  const weakened = new Map<string, string>()
  for (const { remove, replacement = '' } of [weaknesses].flat()) {
    let isHeld = false
    for (const { sha, text } of allScripts().values()) {
      const guarded = weakened.get(sha) ?? text
      const weak = guarded.replace(remove, () => replacement)
      if (weak === guarded) continue
      weakened.set(sha, weak)
      isHeld = true
    }
    if (!isHeld) throw new Error(`no script holds: ${remove}`)
  }
  const shas = new Map([...weakened].map(([sha, text]) => [sha, sha1(text)]))
  return {
    evalsha: (sha, keys, ...args) => runner.evalsha(shas.get(sha) ?? sha, keys, ...args),
    load: async texts => runner.load?.([...texts, ...weakened.values()]),
  }
}

import { rmSync } from 'node:fs'
import { resolve } from 'node:path'
import { describe, expect, it } from 'vitest'
import { runNemesis } from '../nemesis/run.ts'
import { BUILT_FOLDER } from '../support/spawn-cli.ts'
import { weakened } from '../support/weaken.ts'

/** `LONGSHORE_SEED` repeats the plan of faults; when exactly they hit what is up to the machine. */
const SEED = Number(process.env['LONGSHORE_SEED'] ?? Math.floor(Math.random() * 2 ** 31))
const SECONDS = Number(process.env['LONGSHORE_SECONDS'] ?? (process.env['LONGSHORE_ALL'] ? 60 : 20))
const scripts = resolve(BUILT_FOLDER)

describe('a deployment under a seeded nemesis', () => {
  it(
    '[X4] [S10] [L1] loses nothing, runs nothing from nowhere, and nothing twice without a reason',
    async () => {
      process.stdout.write(`nemesis: LONGSHORE_SEED=${SEED} LONGSHORE_SECONDS=${SECONDS}\n`)
      const { findings, folder, ...report } = await runNemesis({ seed: SEED, seconds: SECONDS, scripts })
      process.stdout.write(`nemesis: ${JSON.stringify(report)}\n`)
      expect(findings, `seed ${SEED}; all that there is lies in ${folder}`).toEqual([])
      expect(report.counts.acknowledged).toBeGreaterThan(100)
      expect(report.counts.refused).toBeGreaterThan(0)
      expect(report.counts.effects).toBeGreaterThan(0)
    },
    SECONDS * 1000 + 300_000,
  )

  it('[X4] is caught when a guard is gone: a repeated enqueue that does not look at the history runs a job twice', async () => {
    const blind = [
      { name: 'insert_jobs', guard: 'not-ended' },
      { name: 'drop_ended', guard: 'look-again' },
    ]
    const { findings, folder } = await runNemesis({
      seed: 1,
      seconds: 5,
      size: { workers: 2, relays: 1, producers: 1 },
      scripts,
      around: (stage, play) => weakened(stage, blind, play),
    })
    rmSync(folder, { recursive: true, force: true })
    const kinds = new Set(findings.map(({ what }) => what))
    expect(kinds).toContain('it was completed twice')
    expect(kinds).toContain('it was run again without a reason')
    expect(kinds).toContain('invariant 2 does not hold')
  }, 240_000)
})

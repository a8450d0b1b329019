/** Owns `bench/results/`: one file for each set of scenarios, the last run of it. */
import { mkdirSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const folder = fileURLToPath(new URL('results/', import.meta.url))

export function saveResults(setName: string, results: object): string {
  mkdirSync(folder, { recursive: true })
  const file = `${folder}${setName}.json`
  writeFileSync(file, `${JSON.stringify(results, null, 2)}\n`)
  return file
}

/** Keeps the SQL files free of what a session could read otherwise. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

it('[X13] no literal of the SQL files means something else with standard_conforming_strings = off', () => {
  const files = readdirSync('migrations', { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith('.sql'))
    .map(file => `migrations/${file}`)
  expect(files.length).toBeGreaterThan(100)
  const plain = files.flatMap(file => {
    const text = readFileSync(file, 'utf8').replaceAll(/--.*$/gm, '')
    return [...text.matchAll(/(\w?)'((?:[^']|'')*)'/g)]
      .filter(([, prefix, literal = '']) => prefix !== 'E' && literal.includes('\\'))
      .map(([literal]) => `${file}: ${literal}`)
  })
  expect(plain).toEqual([])
})

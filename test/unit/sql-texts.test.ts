/** Keeps the SQL files free of what a session could read otherwise, and of copies of one rule. */
import { readdirSync, readFileSync } from 'node:fs'
import { expect, it } from 'vitest'

const list = (folder: string, ending: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith(ending))
    .map(file => `${folder}/${file}`)

it('[X13] no literal of the SQL files means something else with standard_conforming_strings = off', () => {
  const files = list('migrations', '.sql')
  expect(files.length).toBeGreaterThan(100)
  const plain = files.flatMap(file => {
    const text = readFileSync(file, 'utf8').replaceAll(/--.*$/gm, '')
    return [...text.matchAll(/(\w?)'((?:[^']|'')*)'/g)]
      .filter(([, prefix, literal = '']) => prefix !== 'E' && literal.includes('\\'))
      .map(([literal]) => `${file}: ${literal}`)
  })
  expect(plain).toEqual([])
})

it('only the functions that are named after its parts know how a score is built, and what is stored with the schema', () => {
  const knowing = [...list('migrations', '.sql'), ...list('src', '.ts')].filter(file =>
    /& 4398046511103|<< 42|>> 42/.test(readFileSync(file, 'utf8')),
  )
  expect(knowing.sort()).toEqual([
    // Functions are dropped and made again when they change, which an index or a view that calls one would not let happen.
    'migrations/0001_schema.sql',
    ...['priority_of', 'run_at_ms_of', 'run_at_of', 'score', 'score_ms'].map(
      name => `migrations/functions/enqueue/${name}.sql`,
    ),
  ])
})

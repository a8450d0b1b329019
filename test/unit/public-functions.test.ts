/**
 * Which SQL functions other processes and users call: the last line of a function's header says who may, `-- public: producer, owner`.
 * A function without such a line is called by other functions only.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { basename } from 'node:path'
import { describe, expect, it } from 'vitest'

const sqlFiles = (folder: string, ends: RegExp) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => ends.test(file))
    .map(file => ({
      name: basename(file).replace(ends, ''),
      text: readFileSync(`${folder}/${file}`, 'utf8'),
    }))

const functions = sqlFiles('migrations/functions', /\.sql$/)
const headerOf = (text: string) => text.slice(0, text.indexOf('create function')).trimEnd().split('\n')
const marked = new Map(
  functions.flatMap(({ name, text }) => {
    const roles = /^-- public: (.+)$/.exec(headerOf(text).at(-1) ?? '')?.[1]
    return roles === undefined ? [] : [[name, roles.split(', ')] as const]
  }),
)

/** By function, the roles in the order of the file. */
function granted(): Map<string, string[]> {
  const grants = readFileSync('migrations/roles/grants.sql', 'utf8').replaceAll(/--.*$/gm, '')
  const found = new Map<string, string[]>()
  for (const [, names = '', roles = ''] of grants.matchAll(
    /grant execute on function([^;]*?)\bto\b([^;]*);/g,
  )) {
    for (const [, name = ''] of names.matchAll(/longshore\.(\w+)/g)) {
      const to = [...roles.matchAll(/longshore_(\w+)/g)].map(([, role = '']) => role)
      found.set(name, [...(found.get(name) ?? []), ...to])
    }
  }
  return found
}

describe('the public functions', () => {
  it('[X15] say in their headers who may call them, as the grants do', () => {
    const said = [...marked].map(([name, roles]) => [name, roles.filter(role => role !== 'owner').toSorted()])
    expect(Object.fromEntries(said.filter(([, roles]) => roles?.length))).toEqual(
      Object.fromEntries([...granted()].map(([name, roles]) => [name, roles.toSorted()])),
    )
  })

  it('[X15] are those that processes call: one that no role is granted is the owner’s', () => {
    const code = sqlFiles('src', /\.m?ts$/)
      .map(({ text }) => text)
      .join('\n')
    const called = functions.filter(({ name }) => code.includes(`longshore.${name}(`)).map(({ name }) => name)
    const ofRoles = granted()
    expect(called.filter(name => !ofRoles.has(name)).toSorted()).toEqual(
      [...marked].flatMap(([name, roles]) => (roles.includes('owner') ? [name] : [])).toSorted(),
    )
  })

  it('say what they are for before that', () => {
    expect([...marked.keys()].filter(name => headerOf(textOf(name)).length < 2)).toEqual([])
  })
})

const textOf = (name: string) => functions.find(file => file.name === name)?.text ?? ''

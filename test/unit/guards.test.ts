/** Keeps guards and red tests together: every guard and every point that is marked in SQL has a test that changes it by name. */
import { readdirSync, readFileSync } from 'node:fs'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

interface Mark {
  kind: 'guard' | 'point'
  name: string
  /** What stands between a guard and its end. */
  text: string
}

const MARK = /\/\* (guard: |point: |end )([a-z]+(?:-[a-z]+)*) \*\//g

/** The marks of an SQL text, with what is wrong with them. */
function readMarks(sql: string): { marks: Mark[]; problems: string[] } {
  const marks: Mark[] = []
  const problems: string[] = []
  const open = new Map<string, number>()
  for (const { 0: mark, 1: kind, 2: name = '', index } of sql.matchAll(MARK)) {
    if (kind === 'point: ') {
      marks.push({ kind: 'point', name, text: '' })
    } else if (kind === 'guard: ') {
      if (open.has(name)) problems.push(`guard ${name} begins again before its end`)
      open.set(name, index + mark.length)
    } else {
      const from = open.get(name)
      if (from === undefined) problems.push(`guard ${name} ends before it begins`)
      else marks.push({ kind: 'guard', name, text: sql.slice(from, index) })
      open.delete(name)
    }
  }
  for (const name of open.keys()) problems.push(`guard ${name} does not end`)
  return { marks, problems }
}

/** What a guard does: the function that it calls, or its text. */
const meaning = ({ text }: Mark) =>
  /longshore\.\w+\(/.exec(text)?.[0] ?? text.replaceAll(MARK, '').replaceAll(/\s+/g, ' ').trim()

const list = (folder: string, ending: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith(ending))
    .map(file => `${folder}/${file}`)

const functions = list('migrations/functions', '.sql').map(file => {
  const sql = readFileSync(file, 'utf8')
  const { marks, problems } = readMarks(sql)
  for (const [comment] of sql.replaceAll(MARK, '').matchAll(/\/\*.*/g))
    problems.push(`${comment} is no mark: /* guard: a-name */ … /* end a-name */, or /* point: a-name */`)
  return { name: file.slice(file.lastIndexOf('/') + 1, -'.sql'.length), marks, problems }
})
const views = list('migrations', '.sql').flatMap(file =>
  [...readFileSync(file, 'utf8').matchAll(/^create (?:or replace )?view longshore\.(\w+) as[^;]*;/gm)].map(
    ([sql, name = '']) => ({ name, ...readMarks(sql) }),
  ),
)
/** Statements of the sources have no names: tests change a connection. */
const statements = list('src', '.ts').map(file => ({ name: '', ...readMarks(readFileSync(file, 'utf8')) }))
const sources = [...functions, ...views, ...statements]

/** The changes that tests make: of what, and where. A text that is put together may be any text of its file. */
const changes = list('test', '.ts').flatMap(file => {
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true)
  const texts = new Set<string>()
  const found: { kind: Mark['kind']; names: Set<string>; marks: Set<string> }[] = []
  const textsOf = (node: ts.ObjectLiteralElementLike | undefined) => {
    if (!node) return new Set([''])
    const isText = ts.isPropertyAssignment(node) && ts.isStringLiteralLike(node.initializer)
    return isText ? new Set([(node.initializer as ts.StringLiteralLike).text]) : texts
  }
  const visit = (node: ts.Node) => {
    if (ts.isStringLiteralLike(node)) texts.add(node.text)
    if (ts.isObjectLiteralExpression(node)) {
      const property = (name: string) => node.properties.find(one => one.name?.getText(source) === name)
      for (const kind of ['guard', 'point'] as const) {
        const mark = property(kind)
        if (mark) found.push({ kind, names: textsOf(property('name')), marks: textsOf(mark) })
      }
    }
    ts.forEachChild(node, visit)
  }
  visit(source)
  return found
})

const isChanged = (name: string, mark: Mark) =>
  changes.some(change => change.kind === mark.kind && change.names.has(name) && change.marks.has(mark.name))

describe('a guard in SQL', () => {
  it('begins, ends and has a name', () => {
    expect(sources.flatMap(({ marks }) => marks).length).toBeGreaterThan(100)
    expect(sources.flatMap(({ name, problems }) => problems.map(problem => `${name}: ${problem}`))).toEqual(
      [],
    )
  })

  it('means the same wherever a function has it', () => {
    const unlike = functions.flatMap(({ name, marks }) =>
      marks
        .filter(mark => marks.some(other => other.name === mark.name && meaning(other) !== meaning(mark)))
        .map(mark => `${name}: ${mark.name}`),
    )
    expect(unlike).toEqual([])
  })

  it('is taken out by a test, and every point is used by one', () => {
    const untested = sources.flatMap(({ name, marks }) =>
      marks.filter(mark => !isChanged(name, mark)).map(mark => `${name}: ${mark.kind} ${mark.name}`),
    )
    expect(untested).toEqual([])
  })

  it.each([
    ['/* guard: a */ x', 'guard a does not end'],
    ['x /* end a */', 'guard a ends before it begins'],
    ['/* guard: a */ x /* guard: a */ y /* end a */', 'guard a begins again before its end'],
  ])('is not %s', (sql, problem) => {
    expect(readMarks(sql).problems.join()).toContain(problem)
  })
})

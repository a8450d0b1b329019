/** Keeps docs/guarantees.md true: what it names exists, and nothing that it promises to show is without a test. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import ts from 'typescript'
import { describe, expect, it } from 'vitest'

const page = readFileSync('docs/guarantees.md', 'utf8')

interface Reference {
  title: string
  file: string
}
/** `title`, [name](../test/….test.ts) */
const references = (text: string): Reference[] =>
  [...text.matchAll(/`([^`]+)`, \[[^\]]+\]\(\.\.\/(test\/[^)]+)\)/g)].map(([, title = '', file = '']) => ({
    title,
    file,
  }))

/** The text below a heading, up to the next one of its level or above. */
const section = (heading: string) => {
  const level = /^#+/.exec(heading)?.[0].length ?? 0
  const from = page.indexOf(`\n${heading}\n`)
  if (from < 0) throw new Error(`docs/guarantees.md has no section ${heading}`)
  const rest = page.slice(from + heading.length + 2)
  const end = rest.search(new RegExp(`^#{1,${level}} `, 'm'))
  return end < 0 ? rest : rest.slice(0, end)
}

const cached = new Map<string, { titles: string[]; texts: Set<string> }>()
/** The titles of the tests in a file as they are written there, and every text in it. */
function read(file: string) {
  const known = cached.get(file)
  if (known) return known
  const titles: string[] = []
  const texts = new Set<string>()
  const visit = (node: ts.Node) => {
    if (ts.isStringLiteralLike(node)) texts.add(node.text)
    if (ts.isCallExpression(node)) {
      const [title] = node.arguments
      const isTest = /^it\b/.test(node.expression.getText(source))
      if (isTest && title && ts.isStringLiteralLike(title)) titles.push(title.text)
    }
    ts.forEachChild(node, visit)
  }
  const source = ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest)
  visit(source)
  const found = { titles, texts }
  cached.set(file, found)
  return found
}

/** As it is written, or with texts of the file in place of `%s` and `$name`. */
function exists({ title, file }: Reference): boolean {
  if (!existsSync(file)) return false
  const { titles, texts } = read(file)
  return titles.some(written => {
    if (written === title) return true
    const pattern = written.split(/%s|\$\w+/).map(part => part.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'))
    const cases = new RegExp(`^${pattern.join('(.+)')}$`).exec(title)?.slice(1)
    return cases !== undefined && cases.length > 0 && cases.every(text => texts.has(text))
  })
}

/** Rows of the tables, and items of the lists, below the heading of a file, which name tests of it. */
const guardReferences = (): Reference[] => {
  let file = ''
  return section('## Guards')
    .split('\n')
    .flatMap(line => {
      const own = references(line)
      if (own.length > 0) return own
      const named = /\]\(\.\.\/(test\/[^)]+)\)/.exec(line)
      if (named) file = named[1] ?? ''
      const title = (/^\|.*\| `([^`]+)` \|$/.exec(line) ?? /^- `([^`]+)`$/.exec(line))?.[1]
      return title === undefined ? [] : [{ title, file }]
    })
}

const FAULTS = [
  'worker | dies after take, before claim',
  'worker | dies while running',
  'worker | paused beyond its lease, then resumes',
  'worker | event loop blocked by a handler',
  'worker | claim in flight while it is being rescued; wakes after rescue and claims',
  'worker | one job of a batch has a result that cannot be stored',
  'worker | reply to the settle commit lost',
  'worker | SIGTERM, then SIGKILL',
  'relay | dies between apply and delete',
  'relay | two leaders',
  'relay | none for a minute',
  'Redis | down / black-holed',
  'Redis | FLUSHALL, empty restart',
  'Redis | fails over to a stale replica',
  'Postgres | restored to an older state',
  'Redis | out of memory, SCRIPT FLUSH, slow',
  'Postgres | immediate shutdown and restart',
  'Postgres | backend killed, deadlock, pool exhausted',
  'Postgres | a transaction held open for minutes (xmin)',
  'client | long open transaction with an enqueue in it, also as child of a running parent',
  'client | reply to the enqueue commit lost, job has already run',
  'clock | worker clock off by ±1 h; producer clock off',
  'graph | 10,000 → 1, 1 → 10,000, cancel racing completion',
]

describe('docs/guarantees.md', () => {
  it('names only tests that exist', () => {
    const named = [...references(page), ...guardReferences()]
    expect(named.length).toBeGreaterThan(200)
    expect(named.filter(reference => !exists(reference))).toEqual([])
  })

  it('would find a title that is not there', () => {
    const file = 'test/flow/red-leases.test.ts'
    expect(exists({ file, title: '[X4] settle: the lease token' })).toBe(true)
    expect(exists({ file, title: '[X4] settle: the lease' })).toBe(false)
    expect(exists({ file, title: '[S8] settle: the lease token' })).toBe(false)
    expect(exists({ file: 'test/flow/gone.test.ts', title: '[X4] settle: the lease token' })).toBe(false)
  })

  it.each(Array.from({ length: 15 }, (_, n) => n + 1))(
    'shows invariant %i by tests, and by red ones',
    number => {
      const [, shown = '', red = ''] = section(`### Invariant ${number}`).split(/\*\*(?:Shown by|Red)\*\*/)
      expect(references(shown).length).toBeGreaterThan(0)
      expect(references(red).length).toBeGreaterThan(0)
    },
  )

  it.each(FAULTS)('shows the fault: %s', fault => {
    const row = section('## Faults')
      .split('\n')
      .find(line => line.startsWith(`| ${fault} |`))
    expect(references(row ?? '').length).toBeGreaterThan(0)
  })

  it('lists every guard that a red test takes away', () => {
    const files = readdirSync('test/flow').filter(name => name.startsWith('red-'))
    expect(files.length).toBeGreaterThan(0)
    const guards = section('## Guards')
    for (const name of files) {
      const rules = [...readFileSync(`test/flow/${name}`, 'utf8').matchAll(/^ +rule: '(.+)',$/gm)]
      expect(rules.length).toBeGreaterThan(0)
      for (const [, rule = ''] of rules) expect(guards, `${name}: ${rule}`).toContain(rule)
    }
  })
})

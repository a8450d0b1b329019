/** The glossary says what the code says, and pages for users keep to its words. */
import { existsSync, readdirSync, readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'

const text = (file: string) => readFileSync(file, 'utf8')
const under = (folder: string, ends: string) =>
  readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter(file => file.endsWith(ends))
    .map(file => text(`${folder}/${file}`))

const glossary = text('docs/glossary.md')
const entries = [...glossary.matchAll(/^\| ([a-z, ]+) \| (.+) \| (.+) \|$/gm)]
  .map(([, word = '', meaning = '', code = '']) => ({ word, meaning, code: code.replaceAll('`', '') }))
  .filter(({ word }) => word !== 'word')

/** Before the words were chosen; each has a row in the style table or in ADR 29 that says what it is called now. */
const OLD_NAMES = [
  ...['declarePropertyKeys', 'auditDispatch', 'readQueueSettings', 'pollIntervalMs', 'latencyThresholdMs'],
  ...['graceMs', 'mostDeadRows', 'mostOpenMs', 'retry: { attempts', 'enqueue_alike', 'group_excuse'],
  ...['tell_waiters', 'settle_others', 'settle_carefully', 'ended_linked', 'keep_slots', 'tend_logs'],
  ...['introduce_tasks', 'leave_redis', 'straight from', 'straight to', 'straight through'],
]
const VAGUE = /\b(whoever|whomever|somebody|someone|nobody|everybody|anybody|in vain)\b/gi
/** Pages for those who change longshore: they name what was there before, and titles of tests. */
const NOT_YET = ['architecture.md', 'guarantees.md']
const pages = [
  'README.md',
  ...readdirSync('docs')
    .filter(file => file.endsWith('.md') && !NOT_YET.includes(file))
    .map(file => `docs/${file}`),
]

describe('docs/glossary.md', () => {
  it('has each word once, with a sentence', () => {
    expect(entries.length).toBeGreaterThan(50)
    expect(new Set(entries.map(({ word }) => word)).size).toBe(entries.length)
    for (const { word, meaning } of entries) expect(meaning, word).toMatch(/^[A-Z].+\.$/)
  })

  it('names only what the code has', () => {
    const code = [...under('src', '.ts'), ...under('migrations', '.sql'), ...under('lua', '.lua')].join('\n')
    const missing = entries.filter(({ code: name }) =>
      /^(src|lua)\//.test(name) ? !existsSync(name) : !code.includes(name),
    )
    expect(missing).toEqual([])
  })

  it('explains words that the other pages use', () => {
    const used = ['guide', 'architecture', 'guarantees'].map(page => text(`docs/${page}.md`)).join('\n')
    const words = entries.flatMap(({ word }) => word.split(', '))
    expect(words.filter(word => !new RegExp(`\\b${word}`, 'i').test(used))).toEqual([])
  })

  it('is linked from the README and the guide', () => {
    expect(text('README.md')).toContain('(docs/glossary.md)')
    expect(text('docs/guide.md')).toContain('(glossary.md)')
  })
})

it.each(pages)('%s uses no old name and says who does what', page => {
  const found = text(page)
  expect(OLD_NAMES.filter(name => found.includes(name))).toEqual([])
  expect(found.match(VAGUE)).toBeNull()
})

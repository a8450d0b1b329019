/**
 * The text format of Prometheus (0.0.4), read strictly: whatever its description does not allow, and whatever a server would take
 * for another thing than it is, is an error.
 */

export interface Series {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

export interface Family {
  readonly name: string
  readonly type: string
  readonly help: string
  readonly series: Series[]
}

export class Scrape {
  constructor(readonly families: ReadonlyMap<string, Family>) {}
  /** All series of that name with these labels, perhaps among others. */
  find(name: string, labels: Record<string, string> = {}): Series[] {
    return [...this.families.values()]
      .flatMap(({ series }) => series)
      .filter(
        each =>
          each.name === name && Object.entries(labels).every(([key, text]) => each.labels[key] === text),
      )
  }
  /** The value of the only one. */
  figure(name: string, labels: Record<string, string> = {}): number {
    const found = this.find(name, labels)
    const [only] = found
    if (!only || found.length > 1)
      throw new Error(`${found.length} series are ${name} ${JSON.stringify(labels)}`)
    return only.value
  }
}

const NAME = /^[a-zA-Z_:][a-zA-Z0-9_:]*$/
const NUMBER = /^[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$/
const TYPES = ['counter', 'gauge', 'histogram']

export function parsePrometheus(text: string): Scrape {
  if (!text.endsWith('\n')) throw new Error('the last line has no end')
  const families = new Map<string, Family>()
  const seen = new Set<string>()
  let help: { name: string; text: string } | undefined
  let current: Family | undefined
  for (const line of text.slice(0, -1).split('\n')) {
    const refuse = (why: string): never => {
      throw new Error(`${why}: ${line}`)
    }
    if (line === '') continue
    if (/[\r\t\0]/.test(line)) refuse('a control character')
    if (line.startsWith('#')) {
      const [, kind, name = '', rest = ''] =
        /^# (HELP|TYPE) (\S+) (.+)$/.exec(line) ?? refuse('no comment of ours')
      if (!NAME.test(name)) refuse('no name')
      if (kind === 'HELP') {
        if (help || families.has(name)) refuse('a second HELP')
        help = { name, text: unescaped(rest, 'n\\', refuse) }
        continue
      }
      if (help?.name !== name) refuse('a TYPE without its HELP')
      if (!TYPES.includes(rest)) refuse('no type')
      if ((rest === 'counter') !== name.endsWith('_total')) refuse('counters, and only they, end in _total')
      current = { name, type: rest, help: help?.text ?? '', series: [] }
      families.set(name, current)
      help = undefined
      continue
    }
    if (help) refuse('a sample between HELP and TYPE')
    const series = parseSeries(line, refuse)
    // Those of one family stand together.
    const suffixes = current?.type === 'histogram' ? ['_bucket', '_sum', '_count'] : ['']
    if (!suffixes.some(suffix => series.name === `${current?.name}${suffix}`))
      refuse(`not of ${current?.name}`)
    const identity = JSON.stringify([series.name, Object.entries(series.labels).sort()])
    if (seen.has(identity)) refuse('twice')
    seen.add(identity)
    if (current?.type !== 'gauge' && !(series.value >= 0)) refuse('below zero')
    current?.series.push(series)
  }
  if (help) throw new Error(`${help.name} has no TYPE`)
  for (const family of families.values()) if (family.type === 'histogram') checkHistogram(family)
  return new Scrape(families)
}

function parseSeries(line: string, refuse: (why: string) => never): Series {
  const [, name = '', , inside, value = ''] = /^([^{ ]+)(\{(.*)\})? (\S+)$/.exec(line) ?? refuse('no sample')
  if (!NAME.test(name)) refuse('no name')
  const labels: Record<string, string> = {}
  let rest = inside ?? ''
  while (rest !== '') {
    const [whole, key = '', text = ''] =
      /^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,(?=.)|$)/.exec(rest) ?? refuse('no label')
    if (key.startsWith('__') || Object.hasOwn(labels, key)) refuse(`the label ${key}`)
    labels[key] = unescaped(text, 'n\\"', refuse)
    rest = rest.slice(whole.length)
  }
  return { name, labels, value: parseValue(value) ?? refuse('no number') }
}

function unescaped(text: string, allowed: string, refuse: (why: string) => never): string {
  return text.replace(/\\(.?)/g, (_, letter: string) => {
    if (letter === '' || !allowed.includes(letter)) refuse(`\\${letter} is no escape`)
    return letter === 'n' ? '\n' : letter
  })
}

function parseValue(text: string): number | undefined {
  if (text === '+Inf') return Number.POSITIVE_INFINITY
  return NUMBER.test(text) ? Number(text) : undefined
}

/** Each set of labels has its buckets in order, cumulative, up to +Inf, which is the count. */
function checkHistogram({ name, series }: Family): void {
  const sets = new Map<string, { buckets: { le: number; value: number }[]; sum?: number; count?: number }>()
  for (const { name: full, labels, value } of series) {
    const { le, ...others } = labels
    const id = JSON.stringify(Object.entries(others).sort())
    const set = sets.get(id) ?? { buckets: [] }
    sets.set(id, set)
    if ((le !== undefined) !== full.endsWith('_bucket'))
      throw new Error(`${full} ${id}: a bucket has le, others have not`)
    if (full.endsWith('_sum')) set.sum = value
    else if (full.endsWith('_count')) set.count = value
    else set.buckets.push({ le: parseValue(le ?? '') ?? Number.NaN, value })
  }
  for (const [id, { buckets, sum, count }] of sets) {
    const isRising = buckets.every(({ le, value }, at) => {
      const before = buckets[at - 1]
      return !Number.isNaN(le) && (!before || (le > before.le && value >= before.value))
    })
    const last = buckets.at(-1)
    if (!isRising || last?.le !== Number.POSITIVE_INFINITY || last.value !== count || sum === undefined)
      throw new Error(`${name} ${id} is no histogram: ${JSON.stringify({ buckets, sum, count })}`)
  }
}

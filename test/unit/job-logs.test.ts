import { pino } from 'pino'
import { describe, expect, it } from 'vitest'
import type { JobId } from '../../src/job/job-id.ts'
import { toLogData, toLogMessage } from '../../src/job/log-data.ts'
import type { ClaimedJob } from '../../src/postgres/settle-and-claim.ts'
import type { NewLine, NewProgress } from '../../src/postgres/write-logs.ts'
import { createJobLogs, noLogCounts } from '../../src/worker/job-logs.ts'
import { counter, gate } from '../support/signals.ts'

/** A buffer whose statements the test answers. */
function open(answer: (lines: NewLine[], progress: NewProgress[]) => Promise<void> | void, maxLines = 1000) {
  const counts = noLogCounts()
  const warnings: string[] = []
  const logger = pino({ level: 'warn' }, { write: text => void warnings.push(JSON.parse(text).msg) })
  const write = async (_: unknown, ...given: [NewLine[], NewProgress[]]) => {
    await answer(...given)
    return 0
  }
  const logs = createJobLogs({ maxLines, write, counts, logger })
  const ofWorker = logs.of({ id: 1, secret: null })
  let runs = 0
  const run = () => {
    const claimed = { id: `job ${++runs}` as JobId, leaseToken: String(runs), attempt: 1 } as ClaimedJob
    return ofWorker.open(claimed, false)
  }
  return { logs, counts, warnings, run }
}

const failing = () => Promise.reject(Object.assign(new Error('no such table'), { code: '42P01' }))

describe('the buffer of log lines', () => {
  it('[S8] has one statement under way at a time, and sends the rest in order behind it', async () => {
    const sent: string[][] = []
    const began = counter()
    const mayEnd = gate()
    let underWay = 0
    const { logs, run, counts } = open(async lines => {
      expect(++underWay).toBe(1)
      sent.push(lines.map(line => line.message))
      began.add()
      await mayEnd.opened
      underWay--
    })
    const one = run()
    one.log('a')
    one.end()
    await began.reached(1)
    for (let n = 0; n < 2500; n++) {
      const other = run()
      other.log(String(n))
      other.end()
    }
    mayEnd.open()
    await began.reached(4)
    await logs.close()
    expect(sent.map(lines => lines.length)).toEqual([1, 1000, 1000, 500])
    expect(sent.flat().slice(1).map(Number)).toEqual(Array.from({ length: 2500 }, (_, n) => n))
    expect(counts.written).toBe(2501)
  })

  it('[S8] sends a statement of bounded size, and counts bytes as well as lines', async () => {
    const sizes: number[] = []
    const { logs, run, counts } = open(lines => {
      sizes.push(lines.reduce((sum, line) => sum + line.message.length + (line.data?.length ?? 0), 0))
    }, 100_000)
    const one = run()
    const long = 'x'.repeat(4000)
    for (let n = 0; n < 5000; n++) one.log(long, { long, more: long })
    expect(counts.dropped.buffer).toBeGreaterThan(4000)
    one.end()
    await logs.close()
    expect(Math.max(...sizes)).toBeLessThan(1024 * 1024)
    expect(counts.written + counts.dropped.buffer).toBe(5001) // one more tells of them
  })

  it('[S8] keeps lines that could not be sent, drops the newest when it is full, and warns once for each episode', async () => {
    let isDown = true
    const sent: NewLine[] = []
    const tries = counter()
    const { logs, run, counts, warnings } = open(lines => {
      tries.add()
      if (isDown) return failing()
      sent.push(...lines)
      return undefined
    }, 100_000)
    const one = run()
    for (let n = 0; n < 10_500; n++) one.log(String(n))
    await tries.reached(2)
    for (let n = 0; n < 2000; n++) {
      const late = run()
      late.log('no room')
      late.end()
    }
    expect(counts.dropped.buffer).toBe(2500)
    isDown = false
    one.end()
    await logs.close()
    expect(sent.slice(0, 10_000).map(line => Number(line.message))).toEqual(
      Array.from({ length: 10_000 }, (_, n) => n),
    )
    // Gaps are told of as long as there is room for that, too.
    expect(sent).toHaveLength(11_000)
    expect(sent.at(-1)?.message).toContain('1 line was dropped here')
    expect(warnings).toEqual([
      'the buffer of log lines is full; what jobs log now is dropped, and counted',
      expect.stringContaining('could not store the log lines of jobs'),
      expect.stringContaining('has room again'),
    ])
  })

  it('[S8] keeps only the newest progress of a run, and no older one after a failure', async () => {
    const sent: NewProgress[][] = []
    const tries = counter()
    const { logs, run } = open((_, progress) => {
      sent.push(progress)
      tries.add()
      if (tries.count > 1) return undefined
      one.progress(3, 9)
      return failing()
    })
    const one = run()
    const other = run()
    one.progress(1, 9)
    one.progress(2, 9)
    other.progress(5)
    await tries.reached(2)
    await logs.close()
    const shown = sent.map(values => values.map(({ run, done, total }) => [run.id, done, total]))
    expect(shown).toEqual([
      [['job 1', 2, 9], ['job 2', 5, null]],
      [['job 1', 3, 9], ['job 2', 5, null]],
    ]) // biome-ignore format: pairs
  })

  it('[S8] closes in bounded time when nothing is answered, and takes nothing more', async () => {
    const { logs, run, counts } = open(() => new Promise<void>(() => undefined))
    const one = run()
    one.log('lost')
    await logs.close()
    expect(counts.dropped.stop).toBe(1)
    one.log('late')
    one.progress(1)
    one.end()
    expect(counts.dropped.late).toBe(1)
  })
})

describe('what a log line may hold', () => {
  it.each([
    ['a text', 'fine', '"fine"'],
    ['an object', { a: 1, b: [true, null, undefined], c: undefined }, '{"a":1,"b":[true,null,null]}'],
    ['a Date', new Date(0), '"1970-01-01T00:00:00.000Z"'],
    ['a bigint', 12n, '"12"'],
    ['nothing', undefined, null],
    ['a Map', new Map([['a', new Set([1])]]), '{"a":[1]}'],
    ['__proto__', JSON.parse('{"__proto__":{"a":1}}'), '{"__proto__":{"a":1}}'],
  ])('[S8] keeps %s whole', (_, given, text) => {
    expect(toLogData(given)).toEqual({ text, isCut: false })
  })

  it.each([
    ['NaN', Number.NaN, '"NaN"'],
    ['a NUL and half a pair', 'a\u0000\ud800', '"a\ufffd\ufffd"'],
    ['bytes', new Uint8Array(3), '"[3 bytes]"'],
    ['a function', [() => 1], '["[function]"]'],
    ['what throws', { toJSON: () => { throw new Error('no') } }, '"[it threw when it was looked at]"'], // biome-ignore format: one line
  ])('[S8] tells of %s in words', (_, given, text) => {
    expect(toLogData(given)).toEqual({ text, isCut: true })
  })

  it('[S8] looks at no more of a large value than it keeps', () => {
    let looked = 0
    const many = new Proxy(Array(1_000_000).fill(0), {
      get(target, key, receiver) {
        looked++
        return Reflect.get(target, key, receiver)
      },
    })
    const { text, isCut } = toLogData({ many })
    expect(isCut).toBe(true)
    expect(text?.endsWith('"…"]}')).toBe(true)
    expect(looked).toBeLessThan(10_000)
    expect(toLogData('\u0001'.repeat(1e6)).text?.length).toBeLessThan(50_000)
    expect(toLogMessage('x'.repeat(1e6)).text).toHaveLength(4000)
  })

  it('[S8] makes a message of anything', () => {
    expect(toLogMessage(new Error('why')).text).toBe('why')
    expect(toLogMessage({ a: 1 }).text).toBe('{"a":1}')
    expect(toLogMessage(undefined).text).toBe('undefined')
    expect(toLogMessage('plain')).toEqual({ text: 'plain', isCut: false })
  })
})

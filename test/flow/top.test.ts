/** `longshore top` as a person and as a script run it. */
import { once } from 'node:events'
import { createServer } from 'node:net'
import { resolve } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { widthOf } from '../../src/cli/terminal-text.ts'
import { defineTask } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { type StoreProxy, startProxy } from '../support/proxy.ts'
import { NO_PTY, type Pty, startInPty } from '../support/pty.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const step = defineTask<number>({ name: 'step' })

const top = (...args: string[]) => spawnCli(['top', ...args], { DATABASE_URL: database.urlOf('reader') })

describe('longshore top --once', () => {
  it('[W12] prints one frame as plain text, or what was seen as JSON', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueueMany(step, [1, 2, 3])
    const [frame, json] = await Promise.all([
      top('--once', '--interval', '100ms').ended,
      top('--once', '--json', '--interval', '100ms').ended,
    ])
    expect(frame.stderr).toBe('')
    expect(frame.code).toBe(0)
    expect(frame.stdout).toContain('longshore top  schema longshore  dispatch direct')
    expect(frame.stdout).toMatch(/^default +3 +0 +0 +0 /m)
    expect(frame.stdout).toContain('no workers: start one with longshore worker\n')
    expect(frame.stdout).toContain(
      '\nno live worker takes ready jobs of task step (queue default, tag default): start one\n',
    )
    expect(frame.stdout).not.toContain('\x1b')
    expect(json.code).toBe(0)
    expect(JSON.parse(json.stdout)).toMatchObject({
      schema: 'longshore',
      dispatch: 'direct',
      queues: [{ name: 'default', ready: { count: 3, is: 'exact' }, running: { count: 0, is: 'exact' } }],
      workers: [],
      unserved: [{ queue: 'default', task: 'step', tag: 'default', constraintTag: 'c:' }],
      rates: { endedPerSecond: expect.any(Number), enqueuedPerSecond: expect.any(Number) },
    })
  })

  it('[W12] names what waits and no live worker takes: by task, queue, tag or property', async () => {
    const producer = deployment.producer({ tasks: [step] })
    await producer.enqueue(step, 1, { constraints: { gpu: 'h100' } })
    await producer.enqueue(defineTask<number>({ name: 'other', queue: 'elsewhere', tag: 'node' }), 1)
    await deployment.worker({
      handlers: [step.handle(() => new Promise(() => undefined))],
      properties: { gpu: 'a100' },
    })
    const seen = await top('--once', '--json', '--interval', '100ms').ended
    expect(JSON.parse(seen.stdout).unserved).toEqual([
      { queue: 'default', task: 'step', tag: 'default', constraintTag: 'c:gpu=h100' },
      { queue: 'elsewhere', task: 'other', tag: 'node', constraintTag: 'c:' },
    ])
    const frame = await top('--once', '--interval', '100ms').ended
    expect(frame.stdout).toContain(
      '\nno live worker takes ready jobs of task step (queue default, tag default, gpu=h100) and 1 more: start one\n',
    )
  })

  it('[W12] says what to do where there is no terminal, no schema or no sense', async () => {
    const [piped, json, fast, schema] = await Promise.all([
      top().ended,
      top('--json').ended,
      top('--interval', '1ms').ended,
      top('--once', '--schema', 'elsewhere').ended,
    ])
    expect(piped.stderr).toContain('this is no terminal: longshore top --once prints one frame')
    expect(json.stderr).toContain('--json goes with --once')
    expect(fast.stderr).toContain('--interval must be at least 100ms; got 1ms')
    for (const { code } of [piped, json, fast]) expect(code).toBe(2)
    expect(schema.stderr).toContain('longshore migrate')
    expect(schema.code).toBe(1)
  })
})

const ENTER = '\x1b[?1049h\x1b[?25l'
const LEAVE = '\x1b[?25h\x1b[?1049l'
const BEGIN = '\x1b[?2026h\x1b[H'
const END = '\x1b[J\x1b[?2026l'

describe.skipIf(NO_PTY)(`longshore top in a terminal${NO_PTY ? ` (skipped: ${NO_PTY})` : ''}`, () => {
  let proxy: StoreProxy | undefined
  let pty: Pty | undefined
  afterEach(async () => {
    pty?.press('q')
    await pty?.ended
    await proxy?.close()
    proxy = undefined
    pty = undefined
  })

  /** What the shell says afterwards tells whether the terminal is as it was. */
  const start = (url: string, env: Record<string, string> = {}) =>
    startInPty(
      `${process.execPath} ${resolve('dist/cli/main.js')} top --interval 200ms; echo "code=$?"; stty -a`,
      {
        DATABASE_URL: url,
        ...env,
      },
    )

  /** The lines of each frame that is complete. The terminal adds a carriage return of its own. */
  const frames = (of: Pty) =>
    of
      .screen()
      .split(BEGIN)
      .slice(1)
      .flatMap(text => (text.includes(END) ? [text.split(END)[0]?.split(/\r+\n/) ?? []] : []))

  async function expectRestored(of: Pty): Promise<void> {
    await of.ended
    const [, after = ''] = of.screen().split(LEAVE)
    expect(after).toContain('code=0')
    expect(after).toMatch(/ icanon .* echo /s)
    // Entered once, and left once.
    expect(of.screen().split(ENTER)).toHaveLength(2)
    expect(of.screen().split(LEAVE)).toHaveLength(2)
  }

  it.each([
    ['q', 'q'],
    ['Ctrl-C', '\x03'],
  ])('[W12] draws whole frames that fit, ends on %s and leaves the terminal as it was', async (_, key) => {
    pty = start(database.urlOf('reader'), { NO_COLOR: '1' })
    await pty.shows('q quits')
    await pty.shows('no workers: start one with longshore worker')
    expect(frames(pty).length).toBeGreaterThan(0)
    for (const lines of frames(pty)) {
      expect(lines.length).toBeLessThanOrEqual(24)
      for (const line of lines) {
        expect(line.startsWith('\x1b[K')).toBe(true)
        expect(line.slice(3)).not.toContain('\x1b')
        expect(widthOf(line.slice(3))).toBeLessThanOrEqual(80)
      }
    }
    pty.press(key)
    await expectRestored(pty)
  })

  it('[W12] ends in order on SIGTERM', async () => {
    pty = startInPty(
      `sh -c '${process.execPath} ${resolve('dist/cli/main.js')} top & pid=$!; read line; kill -TERM $pid; wait $pid; echo "code=$?"; stty -a' </dev/tty`,
      { DATABASE_URL: database.urlOf('reader') },
    )
    await pty.shows('q quits')
    pty.press('\r')
    await expectRestored(pty)
  })

  it('[W12] tells that Postgres is silent or gone, and goes on when it is back', async () => {
    proxy = await startProxy(database.urlOf('reader'))
    pty = start(proxy.url)
    await pty.shows('q quits')
    proxy.holdAll()
    await pty.shows('Postgres has not answered for')
    proxy.leadTo(await closedPort())
    proxy.letFlow()
    await pty.shows('trying again')
    proxy.leadTo(database.urlOf('reader'))
    const told = frames(pty).length
    await expect
      .poll(
        () =>
          frames(pty as Pty)
            .slice(told)
            .some(isFine),
        { timeout: 30_000 },
      )
      .toBe(true)
    pty.press('q')
    await expectRestored(pty)
  })
})

const isFine = (lines: string[]): boolean => {
  const text = lines.join('')
  return text.includes('q quits') && !text.includes('last seen')
}

/** Where nobody listens. */
async function closedPort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return `postgres://127.0.0.1:${port}/none`
}

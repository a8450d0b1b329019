/** Arguments of the command line that make no sense: told in one line with a code, never as a stack. */
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const ID = '0198c0de-0000-7000-8000-000000000000'

const run = async (args: string[], env: Record<string, string> = {}) =>
  spawnCli(args, { DATABASE_URL: database.url, ...env }).ended

describe('the command line', () => {
  const CALLS: [args: string[], code: number, said: string][] = [
    [['cancel', "'; drop schema longshore cascade; --"], 2, 'a job id is a UUID'],
    [['cancel', `${ID}\n`], 2, 'a job id is a UUID'],
    [['explain', 'x'.repeat(3000)], 2, 'a job id is a UUID'],
    [['logs', ID, '--limit', 'NaN'], 2, '--limit must be a whole number'],
    [['logs', ID, '--limit', '-1'], 2, '--limit must be a whole number'],
    [['logs', ID, '--limit', '1e99'], 2, '--limit must be a whole number'],
    [['drain', '9'.repeat(40)], 2, 'no live worker has the id or name'],
    [['drain', '{}', '*', '%', "'"], 2, 'no live worker has the id or name {}, *, %'],
    [['queues', 'a\u0007b', '--fanout-width', '1'], 2, 'without control characters'],
    [['queues', 'q', '--fanout-width', '-1'], 2, 'whole number'],
    [['queues', 'q', '--schedule-mode', 'constructor'], 2, 'Allowed choices are fanout, balanced'],
    [['properties', '__proto__'], 2, 'is not a valid key'],
    [['properties', 'gpu', 'gpu'], 2, 'is named twice'],
    [['workflows', '--limit', 'Infinity'], 2, '--limit must be a whole number'],
    [['watchdog', '--after', '-5s'], 2, 'after must be'],
    [['migrate', '--schema', 'a"; drop schema longshore; --'], 2, 'is not a valid name'],
    [['migrate', '--schema', 'constructor.prototype'], 2, 'is not a valid name'],
    [['migrate', '--patience', 'for ever'], 2, 'patience must be milliseconds or a text'],
    [['worker', './no such module.js'], 2, 'no such module'],
    [['worker', 'data:text/javascript,export default 5'], 2, ''],
    [['worker', './package.json', '--lease', 'Infinity'], 2, '--lease must be a duration'],
    [['relay', '--queue-depth', '1e400'], 2, '--queue-depth must be a whole number'],
    [['relay', '--redis-url', 'redis://user:hunter2@[::1'], 2, 'a Redis URL must start with redis://'],
    [['no-such-command'], 2, "unknown command 'no-such-command'"],
    [['top', '--no-such-flag'], 2, "unknown option '--no-such-flag'"],
  ]
  const titled = CALLS.map(call => [call[0].join(' ').slice(0, 60), ...call] as const)

  it.concurrent.each(titled)('refuses longshore %s', async (_, args, code, said) => {
    const ended = await run(args)
    expect(ended.stderr).toContain(said)
    expect(ended.stderr).not.toMatch(/\n {4}at |hunter2/)
    expect(ended.stderr.length).toBeLessThan(2000)
    expect(ended.code).toBe(code)
  })

  it('says where a wrong variable of the environment is, without what may be secret in it', async () => {
    const { code, stderr } = await run(['relay'], {
      DATABASE_URL: 'mysql://root:hunter2@localhost/x',
      TASK_SCHEDULE_MODE: '__proto__',
      LONGSHORE_QUEUE_DEPTH: '-0x10',
    })
    expect(code).toBe(2)
    expect(stderr).toContain('environment DATABASE_URL must start with postgres://')
    expect(stderr).toContain('environment TASK_SCHEDULE_MODE must be one of')
    expect(stderr).toContain('environment LONGSHORE_QUEUE_DEPTH must be a whole number')
    expect(stderr).not.toContain('hunter2')
  })
})

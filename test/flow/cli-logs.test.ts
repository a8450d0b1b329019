/** `longshore logs`, as a user runs it. */
import { describe, expect, it } from 'vitest'
import { defineTask, newJobId } from '../../src/index.ts'
import { useDatabase } from '../support/database.ts'
import { useDeployment } from '../support/deployment.ts'
import { eventually, gate } from '../support/signals.ts'
import { spawnCli } from '../support/spawn-cli.ts'

const database = useDatabase()
const deployment = useDeployment(database)
const talks = defineTask({ name: 'talks' })

const cli = (...args: string[]) => spawnCli(['logs', ...args], { DATABASE_URL: database.url })

/** A job that has said two lines and is inside. */
async function talking() {
  const producer = deployment.producer()
  const mayReturn = gate()
  await deployment.worker({
    handlers: [
      talks.handle(async (_, ctx) => {
        ctx.log('first', { n: 1 })
        ctx.log.warn('\u001b[2Jsecond\u009b')
        ctx.progress(1, 3)
        await mayReturn.opened
        ctx.log('last')
        ctx.progress(3, 3)
      }),
    ],
  })
  const ref = await producer.enqueue(talks, 1)
  await eventually('it has said something', async () => (await producer.getLogs(ref)).length === 2)
  return { producer, ref, mayReturn }
}

/** Without the times. */
const shown = (stdout: string) => stdout.replaceAll(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, 'TIME')

describe('longshore logs', () => {
  it('[S8] shows the lines of a job that runs, and how far it is; nothing in them steers the terminal', async () => {
    const { ref, mayReturn, producer } = await talking()
    const [lines, json, last] = await Promise.all([
      cli(ref.id).ended,
      cli(ref.id, '--json').ended,
      cli(ref.id, '--limit', '1').ended,
    ])
    const [first, second, progress] = [
      'TIME #1 info  first {"n":1}\n',
      'TIME #1 warn  \\x1b[2Jsecond\\x9b\n',
      'progress: 1 of 3 (33 %), attempt 1, TIME\n',
    ]
    expect(shown(lines.stdout)).toBe(`${first}${second}${progress}`)
    expect(lines.code).toBe(0)
    expect(shown(last.stdout)).toBe(`${second}${progress}`)
    const { lines: told, ...rest } = JSON.parse(json.stdout)
    expect(rest).toMatchObject({ schema: 'longshore', id: ref.id, progress: { done: 1, total: 3 } })
    expect(told).toEqual(JSON.parse(JSON.stringify(await producer.getLogs(ref))))
    mayReturn.open()
    await producer.waitFor(ref)
  })

  it('[S8] --follow shows more as it comes, and ends with the job or with a signal', async () => {
    const { ref, mayReturn } = await talking()
    const [lines, json, stopped] = [
      cli(ref.id, '--follow'),
      cli(ref.id, '--follow', '--json'),
      cli(ref.id, '--follow'),
    ]
    await Promise.all([lines, json, stopped].map(each => each.says('second')))
    stopped.child.kill('SIGINT')
    expect((await stopped.ended).code).toBe(0)
    mayReturn.open()
    const [told, asJson] = [await lines.ended, await json.ended]
    expect(told).toMatchObject({ code: 0, stderr: '' })
    expect(shown(told.stdout).split('\n').slice(2)).toEqual([
      'TIME #1 info  last',
      'progress: 3 of 3 (100 %), attempt 1, TIME',
      '',
    ])
    const objects = asJson.stdout
      .trim()
      .split('\n')
      .map(line => JSON.parse(line))
    expect(objects).toMatchObject([
      { message: 'first' },
      { level: 'warn' },
      { message: 'last' },
      { progress: { done: 3 } },
    ])
  })

  it('[S8] says what is wrong: 2 for a wrong id, 1 for a job that is not there', async () => {
    const unknown = newJobId()
    const [wrong, missing, followed] = await Promise.all([
      cli('42').ended,
      cli(unknown).ended,
      cli(unknown, '--follow').ended,
    ])
    expect(wrong).toMatchObject({ code: 2, stderr: expect.stringContaining('a job id is a UUID') })
    for (const each of [missing, followed])
      expect(each).toMatchObject({ code: 1, stderr: expect.stringContaining('[JOB_NOT_FOUND]') })
  })

  it('[X29] tells why the last attempt failed, with causes and stacks; nothing in them steers the terminal', async () => {
    const task = defineTask({ name: 'breaks', retry: { maxAttempts: 1 } })
    const producer = deployment.producer()
    await deployment.worker({
      handlers: [
        task.handle(() => {
          throw new Error('it broke', { cause: new Error('\u001b[2Jthe cause') })
        }),
      ],
    })
    const ref = await producer.enqueue(task, 1)
    const { error } = await producer.waitFor(ref)
    const [plain, json, followed, explained] = await Promise.all([
      cli(ref.id).ended,
      cli(ref.id, '--json').ended,
      cli(ref.id, '--follow').ended,
      spawnCli(['explain', ref.id], { DATABASE_URL: database.url }).ended,
    ])
    const told =
      /error of the last attempt that failed \(failed, 1 of 1 attempts\):\n {2}Error: it broke\n {6}at .*cli-logs[\s\S]*\n {2}Caused by: Error: \\x1b\[2Jthe cause\n {6}at .*cli-logs/
    expect(plain.stdout).toMatch(told)
    expect(followed.stdout).toMatch(told)
    expect(JSON.parse(json.stdout).error).toEqual(error)
    expect(explained.stdout).toContain(': it broke, caused by: \\x1b[2Jthe cause\n')
  })
})

/** What the README and the guide show is what runs. */
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { migrate } from '../../src/index.ts'
import { MOST_EDGES, MOST_JOBS, MOST_PARENTS } from '../../src/job/group-graph.ts'
import { useDatabase } from '../support/database.ts'
import { spawnScript } from '../support/spawn-cli.ts'

const GROUP_CHAPTERS = [
  'Groups: jobs that run after others',
  'Workflows: one after another',
  'Looking into it',
]

const database = useDatabase({ isEmpty: true })

async function run(script: string, env: Record<string, string>) {
  const { code, stdout, stderr } = await spawnScript(script, [], env).ended
  return { code, output: `${stdout}${stderr}` }
}

/** The code blocks of a language in the chapters of the guide that tell of groups and workflows. */
function blocksOf(language: 'ts' | 'sql'): string[] {
  const chapters = readFileSync('docs/guide.md', 'utf8').split(/^## /m)
  return GROUP_CHAPTERS.flatMap(title => {
    const chapter = chapters.find(text => text.startsWith(`${title}\n`)) ?? ''
    return [...chapter.matchAll(new RegExp(`\`\`\`${language}\\n(.*?)\`\`\``, 'gs'))].map(match =>
      String(match[1]),
    )
  })
}

/** Doomed jobs are part of what is shown: what is logged about them would only hide it. */
const QUIET = { LONGSHORE_LOG_LEVEL: 'error' }

describe('the README', () => {
  it('[X1] shows the example that is run here, to the letter, and it works', async () => {
    const example = readFileSync('examples/first-job.ts', 'utf8')
    expect(readFileSync('README.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/first-job.ts', { DATABASE_URL: database.url })
    expect(output).toContain('succeeded receipt 1 for ada@example.com')
    expect(code).toBe(0)
  })

  it('[X1] shows a line of SQL whose payload its own task takes', async () => {
    const [, sql, payload] =
      /`(select longshore\.enqueue\('send-receipt', '(.*)'\))`/.exec(readFileSync('README.md', 'utf8')) ?? []
    const schema = z.object({ orderId: z.number(), email: z.email() })
    expect(readFileSync('README.md', 'utf8')).toContain(
      'payload: z.object({ orderId: z.number(), email: z.email() })',
    )
    expect(schema.safeParse(JSON.parse(String(payload)))).toMatchObject({ success: true })
    await migrate({ postgres: database.url })
    expect(await database.rows(String(sql))).toHaveLength(1)
  })

  it('[L8] [S13] [X4] leads to a guide whose example is run here too', async () => {
    const example = readFileSync('examples/control-jobs.ts', 'utf8')
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/control-jobs.ts', { DATABASE_URL: database.url })
    expect(output).toBe('changed\ncancelled\n1 invoice\n')
    expect(code).toBe(0)
  })

  it('[X1] [X34] shows many jobs in a transaction, each with its own options', async () => {
    const example = readFileSync('examples/many-orders.ts', 'utf8')
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/many-orders.ts', { DATABASE_URL: database.url })
    expect(output).toBe('3 jobs\n0 jobs\n')
    expect(code).toBe(0)
  })

  it('shows a handler that runs in a thread', async () => {
    const guide = readFileSync('docs/guide.md', 'utf8')
    for (const file of ['thread-job.ts', 'count-primes.ts'])
      expect(guide).toContain(`\`\`\`ts\n${readFileSync(`examples/${file}`, 'utf8')}\`\`\``)
    const { code, output } = await run('examples/thread-job.ts', { DATABASE_URL: database.url, ...QUIET })
    expect(output).toBe('1000 168\n100000 9592\n9007199254740991 TIMEOUT\n')
    expect(code).toBe(0)
  })

  it('[S8] shows how a log is followed', async () => {
    const example = readFileSync('examples/follow-logs.ts', 'utf8')
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/follow-logs.ts', { DATABASE_URL: database.url })
    expect(output.split('\n')).toEqual([
      'info loaded {"file":"a.csv"}',
      'warn passed over {"file":"b.png"}',
      'info loaded {"file":"c.csv"}',
      '3 of 3',
      '',
    ])
    expect(code).toBe(0)
  })

  it('[W11] shows metrics and health in a server of your own', async () => {
    const example = readFileSync('examples/own-metrics.ts', 'utf8')
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/own-metrics.ts', { DATABASE_URL: database.url })
    expect(output.split('\n')).toEqual([
      'longshore_worker_tasks_completed_total{task="greet",outcome="succeeded"} 1',
      '{"isReady":true,"state":"running","postgres":"up","redis":"not used","locks":"free","upkeep":"well","heartbeat":"up","handlers":"none stuck","path":"direct"}',
      '',
    ])
    expect(code).toBe(0)
  })

  it('[X8] shows a trace from the request to what the handler does', async () => {
    const example = readFileSync('examples/traced-job.ts', 'utf8')
    const guide = readFileSync('docs/guide.md', 'utf8')
    expect(guide).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run('examples/traced-job.ts', { DATABASE_URL: database.url })
    expect(guide).toContain(`\`\`\`\n${output}\`\`\``)
    expect(output.split('\n')).toHaveLength(6)
    expect(code).toBe(0)
  })

  it('[S4] [W2] shows a build graph that fails in one branch, and a workflow', async () => {
    const example = readFileSync('examples/build-graph.ts', 'utf8')
    expect(blocksOf('ts')).toContain(example)
    const { code, output } = await run('examples/build-graph.ts', { DATABASE_URL: database.url, ...QUIET })
    expect(output.split('\n')).toEqual([
      'linked a.o b.o c.o 3000 bytes',
      'compile   succeeded',
      'compile   succeeded',
      'compile   succeeded',
      'link      succeeded',
      'test      failed HANDLER_FAILED',
      'package   dependency_failed DEPENDENCY_FAILED',
      'announce  cancelled DEPENDENCY_CANCELLED',
      'document  succeeded',
      'clean-up  succeeded',
      'nightly build: failed, 6 of 9 jobs succeeded',
      'order-17: pick, pack, hand over',
      '',
    ])
    expect(code).toBe(0)
  })

  it('[S2] [S13] shows a group that grows from a handler, and one that is cancelled', async () => {
    const { code, output } = await run('examples/live-group.ts', { DATABASE_URL: database.url, ...QUIET })
    // Being told is a hint: it may come after the wait has ended.
    const lines = output.split('\n').filter(line => line !== 'the film: succeeded')
    expect(lines).toEqual(['cancelled', '183 seconds', 'film 1 succeeded 5', ''])
    expect(code).toBe(0)
  })

  it('[W2] shows a workflow that a failure halts', async () => {
    const env = { DATABASE_URL: database.url, ...QUIET }
    const { code, output } = await run('examples/halted-workflow.ts', env)
    expect(output).toBe('failed\nwaiting\nresumed\nsucceeded\n')
    expect(code).toBe(0)
  })

  it('shows of groups and workflows only code that is run here', async () => {
    const examples = ['build-graph', 'live-group', 'halted-workflow'].map(name =>
      // An excerpt is shown without its indentation.
      readFileSync(`examples/${name}.ts`, 'utf8').replace(/^ +/gm, ''),
    )
    expect(blocksOf('ts').length).toBeGreaterThan(5)
    for (const block of blocksOf('ts')) {
      const lines = block.replace(/^ +/gm, '')
      expect(
        examples.some(example => example.includes(lines)),
        block,
      ).toBe(true)
    }
    await migrate({ postgres: database.url })
    const client = await database.connect()
    for (const block of blocksOf('sql')) await client.query(block)
    expect(blocksOf('sql').length).toBeGreaterThan(2)
  })

  it('names the bounds of a submission as they are', () => {
    const [jobs, edges, parents] = [MOST_JOBS, MOST_EDGES, MOST_PARENTS].map(most =>
      most.toLocaleString('en-US'),
    )
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(
      `at most ${jobs} jobs, ${edges} edges and ${parents} parents of one job`,
    )
  })

  it('[S4] [W2] has a demo that ends by itself with a clean audit', async () => {
    const { code, output } = await run('examples/demo/main.ts', {})
    expect(output).not.toContain('✗')
    expect(output.match(/✓/g)).toHaveLength(16)
    expect(output).toContain(
      'the build ended as failed: compile a succeeded, compile b succeeded, compile c succeeded, link succeeded, ' +
        'test failed, package dependency_failed, document succeeded, clean up succeeded\n',
    )
    expect(code).toBe(0)
  }, 90_000)
})

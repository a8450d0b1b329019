/** What the README and the guide show is what runs. */
import { spawn } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'

const database = useDatabase({ isEmpty: true })

function run(args: string[], env: NodeJS.ProcessEnv): Promise<{ code: number | null; output: string }> {
  const child = spawn(process.execPath, ['--import', 'tsx', ...args], {
    env: { PATH: process.env['PATH'], HOME: process.env['HOME'], ...env },
  })
  let output = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', chunk => (output += chunk))
  return new Promise(resolve => child.on('exit', code => resolve({ code, output })))
}

describe('the README', () => {
  it('[X1] shows the example that is run here, to the letter, and it works', async () => {
    const example = readFileSync('examples/first-job.ts', 'utf8')
    expect(readFileSync('README.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run(['examples/first-job.ts'], { DATABASE_URL: database.url })
    expect(output).toContain('succeeded receipt 1 for ada@example.com')
    expect(code).toBe(0)
  })

  it('[L8] [S13] [X4] leads to a guide whose example is run here too', async () => {
    const example = readFileSync('examples/control-jobs.ts', 'utf8')
    expect(readFileSync('docs/guide.md', 'utf8')).toContain(`\`\`\`ts\n${example}\`\`\``)
    const { code, output } = await run(['examples/control-jobs.ts'], { DATABASE_URL: database.url })
    expect(output).toBe('changed\ncancelled\n1 invoice\n')
    expect(code).toBe(0)
  })

  it('[S4] [W2] has a demo that ends by itself with a clean audit', async () => {
    const { code, output } = await run(['examples/demo/main.ts'], {})
    expect(output).not.toContain('✗')
    expect(output.match(/✓/g)).toHaveLength(16)
    expect(output).toContain(
      'the build ended as failed: compile a succeeded, compile b succeeded, compile c succeeded, link succeeded, ' +
        'test failed, package dependency_failed, document succeeded, clean up succeeded\n',
    )
    expect(code).toBe(0)
  }, 90_000)
})

/** What a user gets who installs the package, and what happens to one who bundles it. */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { build } from 'tsdown'
import { afterAll, describe, expect, it } from 'vitest'
import { useDatabase } from '../support/database.ts'
import { spawnFile } from '../support/spawn-cli.ts'

const manifest = JSON.parse(readFileSync('package.json', 'utf8')) as Record<string, Record<string, unknown>>
const database = useDatabase()
// Under node_modules, so that what is left out of a bundle is found.
const folder = mkdtempSync(resolve('node_modules/.longshore-bundle-'))
afterAll(() => rmSync(folder, { recursive: true, force: true }))

describe('the package', () => {
  it('[X35] asks for no package that nothing of it imports', async () => {
    expect(Object.keys(manifest['peerDependencies'] ?? {})).toEqual(['@opentelemetry/api', 'testcontainers'])
  })

  it('[X35] says where its code, its types and its home are, for tools of every age', () => {
    expect(manifest).toMatchObject({ main: './dist/index.js', types: './dist/index.d.ts' })
    for (const field of ['repository', 'homepage', 'bugs']) expect(manifest[field], field).toBeDefined()
  })
})

describe('a bundle', () => {
  const APP = `
    import { createProducer, createWorker, defineTask, migrate } from ${JSON.stringify(resolve('src/index.ts'))}
    const postgres = process.env.DATABASE_URL
    const task = defineTask({ name: 'bundled' })
    const run = async () => {
      const producer = createProducer({ postgres })
      for (const start of [
        () => migrate({ postgres }),
        () => producer.enqueue(task, {}),
        () => createWorker({ postgres, handlers: [task.handle(() => undefined)] }).start(),
      ]) await start().then(() => console.log('started'), error => console.log(error.code, error.message))
      await producer.close()
    }
    void run()`

  it.each([
    ['esm', 'app.js'],
    ['cjs', 'app.cjs'],
  ] as const)('[X35] in %s says what to leave external', async (format, file) => {
    const entry = join(folder, `${format}.ts`)
    writeFileSync(entry, APP)
    writeFileSync(join(folder, 'package.json'), '{ "name": "app", "type": "module" }')
    await build({
      entry: { app: entry },
      format,
      outDir: join(folder, format, 'dist', 'deep'),
      outExtensions: () => ({ js: file.slice('app'.length) }),
      deps: { skipNodeModulesBundle: true },
      config: false,
      dts: false,
      logLevel: 'error',
    })
    const { stdout } = await spawnFile(join(folder, format, 'dist', 'deep', file), [], {
      DATABASE_URL: database.url,
    }).ended
    const lines = stdout.trim().split('\n')
    expect(lines).toHaveLength(3)
    for (const line of lines)
      expect(line).toMatch(/^CONFIG_INVALID longshore was bundled .* esbuild --external:longshore/)
  })
})

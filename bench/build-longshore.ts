/**
 * Owns the longshore that is measured: a snapshot of `src/`, `migrations/` and `lua/`, built the way it is published. Run by
 * tsx it would be slower: esbuild's `keepNames` adds a call for every closure, several in each job. The snapshot also
 * keeps edits made meanwhile out of a run. So are the processes that run it: under tsx each of a worker's threads would load tsx
 * as well, a third of a second each.
 */
import { cpSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'tsdown'

const root = fileURLToPath(new URL('../', import.meta.url))

export interface LongshoreBuild {
  /** Folder with `dist/`, `migrations/` and `lua/`; and `bench/`, the processes of the harness that are forked. */
  readonly folder: string
  remove(): void
}

export async function buildLongshore(): Promise<LongshoreBuild> {
  // Below node_modules, so that its dependencies are found.
  const cache = `${root}node_modules/.cache`
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(`${cache}/longshore-bench-`)
  for (const part of ['package.json', 'migrations', 'lua'])
    cpSync(`${root}${part}`, `${folder}/${part}`, { recursive: true })
  const shared = {
    config: false,
    cwd: root,
    unbundle: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    fixedExtension: false,
    dts: false,
    clean: false,
    deps: { skipNodeModulesBundle: true },
    logLevel: 'warn',
  } as const
  await build({ ...shared, entry: ['src/index.ts'], root: 'src', outDir: `${folder}/dist` })
  await build({
    ...shared,
    entry: ['bench/worker-process.ts', 'bench/relay-process.ts'],
    root: 'bench',
    outDir: `${folder}/bench`,
  })
  return { folder, remove: () => rmSync(folder, { recursive: true, force: true }) }
}

/**
 * Owns the longshore that is measured: a snapshot of `src/`, `migrations/` and `lua/` of a checkout, built the way it is
 * published. Run by tsx it would be slower: esbuild's `keepNames` adds a call for every closure, several in each job. The
 * snapshot also keeps edits made meanwhile out of a run. The processes that run it are built too: under tsx each of a worker's
 * threads would load tsx as well, a third of a second each.
 *
 * The harness is always that of this checkout, so that two checkouts are measured alike; only `bench/peers/longshore.ts`, which
 * calls the public API, is the checkout's own.
 */
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { build } from 'tsdown'

/** Of the harness: each is forked. */
const PROGRAMS = [
  'bench/processes/worker-process.ts',
  'bench/processes/relay-process.ts',
  'bench/liveness/fleet-process.ts',
]

const own = fileURLToPath(new URL('../../', import.meta.url))

/**
 * Builds this checkout, or another one that has its dependencies installed. Returns a folder, removed when this process exits, with
 * `dist/`, `migrations/` and `lua/`; `adapter/`, the checkout's peer; and `bench/`, the processes of the harness that are forked.
 */
export async function buildLongshore(checkout = own): Promise<string> {
  const root = checkout.endsWith('/') ? checkout : `${checkout}/`
  if (!existsSync(`${root}node_modules`)) throw new Error(`${root} has no node_modules: run npm ci there`)
  // Below node_modules, so that its dependencies are found.
  const cache = `${root}node_modules/.cache`
  mkdirSync(cache, { recursive: true })
  const folder = mkdtempSync(`${cache}/longshore-bench-`)
  process.once('exit', () => rmSync(folder, { recursive: true, force: true }))
  for (const part of ['package.json', 'migrations', 'lua'])
    cpSync(`${root}${part}`, `${folder}/${part}`, { recursive: true })
  const shared = {
    config: false,
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
  await build({ ...shared, cwd: root, entry: ['src/index.ts'], root: 'src', outDir: `${folder}/dist` })
  await build({
    ...shared,
    cwd: root,
    unbundle: false,
    entry: ['bench/peers/longshore.ts'],
    outDir: `${folder}/adapter`,
  })
  await build({
    ...shared,
    cwd: own,
    entry: PROGRAMS,
    root: 'bench',
    outDir: `${folder}/bench`,
  })
  return folder
}

/**
 * Compiles the scripts that tests run as processes of their own, once for all: compiled anew for each of two hundred starts they
 * would take a second more each time.
 */
import { mkdirSync, rmSync, symlinkSync } from 'node:fs'
import { resolve } from 'node:path'
import { build } from 'tsdown'
import { BUILT_SCRIPTS } from './spawn-cli.ts'

/** In the folders they come from, so that what is found from there is found from here: modules, `migrations/` and `lua/`. */
export async function buildScripts(
  folder: string,
  scripts: readonly string[] = BUILT_SCRIPTS,
): Promise<void> {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  for (const name of ['migrations', 'lua', 'package.json']) symlinkSync(resolve(name), resolve(folder, name))
  await build({
    entry: [...scripts],
    root: '.',
    outDir: folder,
    clean: false,
    dts: false,
    logLevel: 'error',
  })
}

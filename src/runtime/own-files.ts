/**
 * Owns where the package's own files are: package.json, `migrations/`, `lua/` and the programs of its threads. A bundler moves code and
 * leaves files behind, so that other files, or none, stand where these should.
 */
import { readFileSync } from 'node:fs'
import { LongshoreError } from '../job/errors.ts'

let root: URL | undefined

/** A file or folder of the package, by its path from there. */
export const ownFile = (path: string): URL => new URL(path, findRoot())

function findRoot(): URL {
  if (root) return root
  try {
    // A bundle in CommonJS has no import.meta.url at all.
    const found = new URL('../../', import.meta.url)
    const { name } = JSON.parse(readFileSync(new URL('package.json', found), 'utf8')) as { name?: string }
    if (name !== 'longshore') throw new Error(`package.json there is that of ${name}`)
    root = found
    return found
  } catch (error) {
    throw new LongshoreError(
      'CONFIG_INVALID',
      "longshore was bundled into another file, and does not find its own files from there. Leave it out of the bundle: esbuild --external:longshore; webpack externals: ['longshore']; Rollup and Vite external: ['longshore']; Next.js serverExternalPackages: ['longshore']",
      { cause: error },
    )
  }
}

/** Owns how a module of the user's is loaded, and what is said when that fails: where it threw, without our own frames. */
import { pathToFileURL } from 'node:url'
import { LongshoreError } from '../job/errors.ts'

/** The message tells what is wrong: a module that is not there, or that Node does not read. */
const PLAIN = new Set(['ERR_MODULE_NOT_FOUND', 'ERR_UNKNOWN_FILE_EXTENSION', 'ERR_UNSUPPORTED_DIR_IMPORT'])

/** `what`: such as `config file /app/longshore.config.js`. */
export async function loadModule(path: string, what: string): Promise<unknown> {
  try {
    return await import(pathToFileURL(path).href)
  } catch (error) {
    throw new LongshoreError('CONFIG_INVALID', `cannot load ${what}: ${describe(error, path)}`, {
      cause: error,
    })
  }
}

function describe(error: unknown, path: string): string {
  if (!(error instanceof Error)) return String(error)
  const { code } = error as { code?: unknown }
  if (code === 'ERR_UNKNOWN_FILE_EXTENSION') {
    return `${error.message}. Compile it and name the JavaScript, or let a loader read it: NODE_OPTIONS="--import tsx" longshore worker …`
  }
  if (PLAIN.has(String(code))) return error.message
  const lines = (error.stack ?? error.message).split('\n')
  const ours = lines.findIndex(line => line.includes(import.meta.url))
  const shown = lines
    .slice(0, ours === -1 ? undefined : ours)
    .filter(line => !line.includes('(node:internal/'))
  // With the line of code and a mark under it, which must stay under it.
  if (shown[0]?.startsWith('file://')) return ['', ...shown].join('\n    ')
  // Node tells where a syntax error is only when it runs the module itself.
  if (shown.length === 1) return `${shown[0]}. \`node ${path}\` shows where`
  return shown.join('\n')
}

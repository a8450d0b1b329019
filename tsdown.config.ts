/**
 * One file in `dist/` per file in `src/`, in the same folders: stack traces name the file a reader knows, and
 * `new URL('../../migrations/', import.meta.url)` means the same in both.
 */
import { defineConfig } from 'tsdown'

export default defineConfig({
  entry: ['src/index.ts', 'src/cli/main.ts', 'src/dev/index.ts'],
  unbundle: true,
  root: 'src',
  format: 'esm',
  platform: 'node',
  target: 'node20',
  fixedExtension: false,
  dts: true,
  deps: { skipNodeModulesBundle: true },
  checks: { bundlerTimings: false },
  logLevel: 'warn',
})

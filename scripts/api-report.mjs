/**
 * The reports of the public API, one for each entry point: `docs/api/*.api.md`. `npm run api:report` writes them from a fresh build;
 * `npm run check -- api` compares, so that a change of the API shows in the change that makes it.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { Extractor, ExtractorConfig, ExtractorLogLevel } from '@microsoft/api-extractor'

const root = fileURLToPath(new URL('..', import.meta.url))
const REPORTS = { 'longshore.api.md': 'dist/index.d.ts', 'longshore-dev.api.md': 'dist/dev/index.d.ts' }

/** Writes the reports of what is in `dist` into a folder. Returns what keeps them from being whole. */
export function writeReports(folder) {
  mkdirSync(folder, { recursive: true })
  const scratch = mkdtempSync(join(tmpdir(), 'longshore-api-'))
  try {
    return Object.entries(REPORTS).flatMap(([name, entry]) => writeReport(name, entry, folder, scratch))
  } finally {
    rmSync(scratch, { recursive: true, force: true })
  }
}

function writeReport(name, entry, folder, scratch) {
  const { compilerOptions } = JSON.parse(readFileSync(join(root, 'tsconfig.json'), 'utf8'))
  const { paths: _, ...withoutPaths } = compilerOptions
  const { none, error } = {
    none: { logLevel: ExtractorLogLevel.None },
    error: { logLevel: ExtractorLogLevel.Error },
  }
  const config = ExtractorConfig.prepare({
    configObject: {
      projectFolder: root,
      mainEntryPointFilePath: join(root, entry),
      compiler: { overrideTsconfig: { compilerOptions: withoutPaths, files: [join(root, entry)] } },
      apiReport: { enabled: true, reportFolder: folder, reportTempFolder: scratch, reportFileName: name },
      docModel: { enabled: false },
      dtsRollup: { enabled: false },
      tsdocMetadata: { enabled: false },
      newlineKind: 'lf',
      // A type that users meet and cannot name is a mistake; how comments are written is for others to judge.
      messages: {
        compilerMessageReporting: { default: error },
        extractorMessageReporting: { default: none, 'ae-forgotten-export': error },
        tsdocMessageReporting: { default: none },
      },
    },
    configObjectFullPath: undefined,
    packageJsonFullPath: join(root, 'package.json'),
  })
  const problems = []
  Extractor.invoke(config, {
    localBuild: true,
    messageCallback(message) {
      message.handled = true
      if (message.logLevel === 'error') problems.push(`${message.sourceFilePath ?? entry}: ${message.text}`)
    },
  })
  return problems
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const problems = writeReports(join(root, 'docs', 'api'))
  for (const problem of problems) console.error(problem)
  process.exitCode = problems.length > 0 ? 1 : 0
}

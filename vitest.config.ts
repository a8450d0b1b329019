import { defineConfig } from 'vitest/config'

/** `.ci/run` counts from this file. Under node_modules, because nothing else looks there. */
const RESULTS_FILE = 'node_modules/.vitest/results.json'

/** What a worker does, whichever way its jobs come: these files run on both dispatch paths. */
const BOTH_PATHS = [
  'cancel',
  'change',
  'complete',
  'constraints',
  'drain',
  'explain',
  'doctor-live',
  'groups',
  'hostile-payloads',
  'hostile-sql',
  'limits',
  'many-at-once',
  'order',
  'rescue',
  'run',
  'run-alone',
  'schedule',
  'stop',
  'tracing',
  'workflows',
].map(name => `test/flow/${name}.test.ts`)

export default defineConfig({
  test: {
    globalSetup: 'test/support/global-setup.ts',
    pool: 'forks',
    // Memory tests ask for a collection before they measure.
    execArgv: ['--expose-gc'],
    // Faults are made on purpose; what is logged about them would only hide the results.
    env: { LONGSHORE_LOG_LEVEL: 'silent' },
    // On 2 cores three take 0.8 of the time of two: many tests wait for leases and processes.
    maxWorkers: 3,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    reporters: process.env['CI'] ? ['default', ['json', { outputFile: RESULTS_FILE }]] : ['default'],
    projects: [
      {
        extends: true,
        test: { name: 'all', include: ['test/**/*.test.ts'], provide: { dispatch: 'direct' } },
      },
      {
        extends: true,
        test: {
          // Processes have the roles and users that they would have in production, see global-setup.ts.
          name: 'through redis',
          include: [
            ...BOTH_PATHS,
            'test/crash/graphs-hold.test.ts',
            'test/crash/held-snapshot.test.ts',
            'test/crash/limits-hold.test.ts',
            'test/crash/upgrade.test.ts',
            'test/crash/worker-dies.test.ts',
          ],
          provide: { dispatch: 'redis' },
        },
      },
    ],
  },
})

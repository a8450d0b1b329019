import { defineConfig } from 'vitest/config'

/** `.ci/run` counts from this file. Under node_modules, because nothing else looks there. */
const RESULTS_FILE = 'node_modules/.vitest/results.json'

/** `npm run test:all`: every matrix, and for longer. */
const isAll = Boolean(process.env['LONGSHORE_ALL'])

/** What a worker does, whichever way its jobs come: these files run on both dispatch paths. */
const BOTH_PATHS = [
  'cancel',
  'change',
  'connections',
  'constraints',
  'drain',
  'doctor-live',
  'groups',
  'job-source',
  'limits',
  'order',
  'rescue',
  'run',
  'stop',
  'workflows',
  // What they show is done by Postgres or inside of the worker; the gate shows it in direct mode.
  ...(isAll ? ['complete', 'explain', 'hostile-payloads', 'hostile-sql', 'many-at-once', 'run-alone'] : []),
].map(name => `test/flow/${name}.test.ts`)
/** What fails there is known, see known-failures.ts. */
const LIVE = isAll ? ['test/live/{deadlocks,fleets,scenarios}.test.ts'] : []
/** They set the clock, or what traces. */
const IN_OWN_PROCESS = ['schedule', 'tracing'].map(name => `test/flow/${name}.test.ts`)

/** Once more on a server where all settings are odd, see odd-server.ts: whatever reads times, writes literals or keeps history. */
const ODD_SERVER = [
  ...['change', 'history', 'odd-server', 'views'],
  ...(isAll ? ['cli-groups', 'cli-logs', 'enqueue', 'explain', 'logs', 'overview', 'watchdog'] : []),
].map(name => `test/flow/${name}.test.ts`)

/**
 * Files with a process for each: they start and end others, or change what a process has only one of. All other files share
 * processes with those before them, which saves loading everything anew: a sixth of the CPU time of 59 flow and unit files.
 */
const ALONE = [
  ...['crash', 'model', 'stores'].map(folder => `test/${folder}/*.test.ts`),
  ...IN_OWN_PROCESS,
  ...['heartbeat', 'memory', 'quiet', 'thread-pool', 'threads'].map(name => `test/flow/${name}.test.ts`),
  ...['job-id', 'memory', 'wake-up'].map(name => `test/unit/${name}.test.ts`),
]

export default defineConfig({
  test: {
    globalSetup: 'test/support/global-setup.ts',
    pool: 'forks',
    // Memory tests ask for a collection before they measure.
    execArgv: ['--expose-gc'],
    // Faults are made on purpose; what is logged about them would only hide the results.
    env: { LONGSHORE_LOG_LEVEL: 'silent' },
    // More than there are cores: many tests wait for leases and processes.
    maxWorkers: 4,
    testTimeout: 60_000,
    hookTimeout: 120_000,
    reporters: process.env['CI'] ? ['default', ['json', { outputFile: RESULTS_FILE }]] : ['default'],
    projects: [
      {
        extends: true,
        test: {
          name: 'all',
          include: ['test/**/*.test.ts'],
          exclude: ALONE,
          isolate: false,
          provide: { dispatch: 'direct' },
        },
      },
      {
        extends: true,
        test: { name: 'all alone', include: ALONE, provide: { dispatch: 'direct' } },
      },
      {
        extends: true,
        test: {
          name: 'odd server',
          include: ODD_SERVER,
          isolate: false,
          provide: { dispatch: 'direct', isOdd: true },
        },
      },
      // Processes have users of Redis as they would have in production, see deployment.ts.
      {
        extends: true,
        test: {
          name: 'through redis',
          include: [...BOTH_PATHS, ...LIVE],
          isolate: false,
          provide: { dispatch: 'redis' },
        },
      },
      {
        extends: true,
        test: {
          name: 'through redis alone',
          include: [
            'test/flow/schedule.test.ts',
            'test/crash/graphs-hold.test.ts',
            'test/crash/limits-hold.test.ts',
            // They do not depend on the way.
            ...(isAll
              ? ['test/flow/tracing.test.ts', 'test/crash/{held-snapshot,upgrade,worker-dies}.test.ts']
              : []),
          ],
          provide: { dispatch: 'redis' },
        },
      },
    ],
  },
})

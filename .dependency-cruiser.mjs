/**
 * The borders of `src/`: imports go down only, as docs/architecture.md draws them. Type-only imports count like all
 * others, since a cycle of types is a cycle of ideas.
 */

/** Which folders of `src/` a folder may import, besides itself. A folder that is not here may not exist. */
const mayImport = {
  job: [],
  runtime: ['job'],
  postgres: ['runtime', 'job'],
  redis: ['runtime', 'job'],
  producer: ['postgres', 'redis', 'runtime', 'job'],
  upkeep: ['postgres', 'redis', 'runtime', 'job'],
  worker: ['upkeep', 'postgres', 'redis', 'runtime', 'job'],
  relay: ['upkeep', 'postgres', 'redis', 'runtime', 'job'],
  dev: ['postgres', 'redis', 'runtime', 'job'],
  cli: ['producer', 'worker', 'relay', 'upkeep', 'dev', 'postgres', 'redis', 'runtime', 'job'],
}
const indexMayImport = ['producer', 'worker', 'relay', 'postgres', 'redis', 'runtime', 'job']

const entries = ['^src/index\\.ts$', '^src/dev/index\\.ts$', '^src/cli/main\\.ts$']
const within = folders => `^src/(${folders.join('|')})/`
const installed = name => `(^|/)node_modules/(@types/)?${name}/`

function rule(name, comment, from, to) {
  return { name, comment, severity: 'error', from, to }
}

export default {
  forbidden: [
    ...Object.entries(mayImport).map(([folder, below]) =>
      rule(
        `${folder}-imports-down-only`,
        `src/${folder} may import ${below.length === 0 ? 'nothing else of src' : below.join(', ')}.`,
        { path: within([folder]) },
        { path: '^src/', pathNot: within([folder, ...below]) },
      ),
    ),
    rule(
      'index-lists-the-public-api',
      `src/index.ts may import ${indexMayImport.join(', ')}.`,
      { path: '^src/index\\.ts$' },
      { path: '^src/', pathNot: within(indexMayImport) },
    ),
    rule(
      'every-folder-has-its-level',
      'A new folder (or a new file beside index.ts) needs a line in .dependency-cruiser.mjs and in the architecture page.',
      { path: '^src/', pathNot: [within(Object.keys(mayImport)), '^src/index\\.ts$'] },
      {},
    ),
    rule(
      'pg-only-in-postgres',
      'Everyone else uses what src/postgres offers, a Queryable above all.',
      { path: '^src/', pathNot: within(['postgres']) },
      { path: installed('pg') },
    ),
    rule(
      'ioredis-only-in-redis',
      'Everyone else uses the typed calls of src/redis.',
      { path: '^src/', pathNot: within(['redis']) },
      { path: installed('ioredis') },
    ),
    rule(
      'producer-works-without-redis',
      'A producer needs Postgres only: what it needs for hints it loads when it is given a Redis.',
      { path: within(['producer']) },
      {
        path: [within(['redis']), installed('ioredis')],
        pathNot: '^src/redis/redis-config\\.ts$', // reads what a user says, and loads nothing
        dependencyTypesNot: ['dynamic-import', 'type-only'],
      },
    ),
    rule('no-cycles', 'A cycle has no bottom to read from.', { path: '^src/' }, { circular: true }),
    rule(
      'no-orphans',
      'Nothing public leads to this file.',
      { path: entries },
      { path: '^src/', pathNot: [...entries, '\\.d\\.m?ts$'], reachable: false },
    ),
    rule(
      'src-stands-alone',
      'The package holds src only; tests, benchmarks, examples and scripts look at it, never the other way.',
      { path: '^src/' },
      { path: '^(test|bench|examples|scripts)/' },
    ),
    rule(
      'no-development-dependencies',
      'They are not there where the package is installed. An optional peer may be one as well.',
      { path: '^src/' },
      { dependencyTypes: ['npm-dev'], dependencyTypesNot: ['npm', 'npm-peer', 'npm-optional'] },
    ),
    rule(
      'declared-dependencies-only',
      'A package that package.json does not name is there by luck.',
      { path: '^src/' },
      { dependencyTypes: ['npm-no-pkg', 'npm-unknown'], dependencyTypesNot: ['npm-peer'] },
    ),
    rule('every-import-resolves', 'There is no such module.', { path: '^src/' }, { couldNotResolve: true }),
  ],
  options: {
    tsPreCompilationDeps: true,
    tsConfig: { fileName: 'tsconfig.json' },
    doNotFollow: { path: 'node_modules' },
    enhancedResolveOptions: {
      exportsFields: ['exports'],
      conditionNames: ['import', 'node', 'default', 'types'],
    },
  },
}

/** Writes `test/all-report.md` at the end of `npm run test:all`: of which commit, when, how long, and what failed. */
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import type { Reporter, TestCase, TestModule, TestSpecification, Vitest } from 'vitest/node'

declare module 'vitest' {
  interface TaskMeta {
    /** Of a test that is known to fail: what it did this time. */
    knownFailure?: string
  }
}

const FILE = new URL('../all-report.md', import.meta.url)

export interface Outcome {
  /** With the way of dispatch or the server it ran on. */
  title: string
  state: 'passed' | 'failed' | 'skipped' | 'pending'
  /** What it did, if it is known to fail. */
  knownFailure?: string | undefined
}

export interface Run {
  commit: string
  /** Files that differ from the commit. */
  changed: readonly string[]
  began: Date
  seconds: number
  /** What it ran on. */
  machine: string
  outcomes: readonly Outcome[]
  /** Failures of no test: of a file as a whole, or of nobody. */
  errors: readonly string[]
}

const minutes = (seconds: number) => `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`
const list = (title: string, lines: readonly string[]) =>
  lines.length === 0 ? [] : ['', `## ${title}`, '', ...lines.map(line => `- ${line}`)]

export function reportOf({ commit, changed, began, seconds, machine, outcomes, errors }: Run): string {
  const known = outcomes.filter(({ knownFailure }) => knownFailure !== undefined)
  const failed = outcomes.filter(({ state }) => state === 'failed').map(({ title }) => title)
  const count = (state: Outcome['state']) =>
    outcomes.filter(each => each.state === state && each.knownFailure === undefined).length
  return [
    '# The last run of `npm run test:all`',
    '',
    'The run writes this file itself (`test/support/all-report.ts`), whether it passed or not.',
    '',
    `- commit: ${commit}${changed.length === 0 ? '' : `, with changes of ${changed.join(', ')}`}`,
    `- began: ${began.toISOString()}`,
    `- took: ${minutes(Math.round(seconds))}`,
    `- machine: ${machine}`,
    `- tests: ${count('passed')} passed, ${failed.length} failed, ${known.length} known to fail, ${count('skipped')} skipped, ${count('pending')} not reached`,
    `- other errors: ${errors.length}`,
    ...list('Failed', failed),
    ...list('Other errors', errors),
    ...list(
      'Known to fail',
      known.map(({ title, knownFailure }) => `${title}: ${knownFailure}`),
    ),
    '',
  ].join('\n')
}

const git = (...args: string[]) => execFileSync('git', args, { encoding: 'utf8' }).trimEnd()
const firstLine = (message = '') => message.split('\n', 1)[0] ?? ''

function outcomeOf(test: TestCase): Outcome {
  return {
    title: `${test.project.name}: ${test.module.relativeModuleId}: ${test.fullName}`,
    state: test.result().state,
    knownFailure: test.meta().knownFailure,
  }
}

/** Only of whole runs: with a filter it writes nothing. */
export default class AllReport implements Reporter {
  private vitest: Vitest | undefined
  private began = new Date()
  private isWhole = false
  private commit = ''
  private changed: string[] = []

  onInit(vitest: Vitest): void {
    this.vitest = vitest
  }

  async onTestRunStart(specifications: readonly TestSpecification[]): Promise<void> {
    if (!this.vitest) return
    const { project, testNamePattern, shard } = this.vitest.config
    const all = await this.vitest.globTestSpecifications()
    this.isWhole =
      [project].flat().filter(Boolean).length === 0 &&
      !testNamePattern &&
      !shard &&
      specifications.length === all.length
    this.began = new Date()
    // Of what is tested, whatever is done to the files meanwhile.
    this.commit = git('rev-parse', 'HEAD')
    this.changed = git('status', '--porcelain')
      .split('\n')
      .filter(line => line !== '' && !line.endsWith('test/all-report.md'))
      .map(line => line.slice(3))
  }

  onTestRunEnd(modules: readonly TestModule[], unhandled: readonly { message?: string }[]): void {
    if (!this.isWhole) return
    const ofModules = modules.flatMap(module =>
      [...module.errors(), ...[...module.children.allSuites()].flatMap(suite => suite.errors())].map(
        error => `${module.project.name}: ${module.relativeModuleId}: ${firstLine(error.message)}`,
      ),
    )
    const text = reportOf({
      commit: this.commit,
      changed: this.changed,
      began: this.began,
      seconds: (Date.now() - this.began.getTime()) / 1000,
      machine: `${availableParallelism()} cores, Node.js ${process.version}, ${process.platform}`,
      outcomes: modules.flatMap(module => [...module.children.allTests()].map(outcomeOf)),
      errors: [...ofModules, ...unhandled.map(error => firstLine(error.message))],
    })
    writeFileSync(FILE, text)
  }
}

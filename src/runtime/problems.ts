/** Owns how wrong settings are told: all at once, each with where it came from. */
import { type ErrorCode, LongshoreError } from '../job/errors.ts'

export interface Problem {
  readonly code: ErrorCode
  /** Where the value came from, what is wrong with it and what is allowed. */
  readonly message: string
}

const MOST_TOLD = 20

/** A single problem is told as itself, several as a list. */
class ProblemsError extends LongshoreError {
  constructor(readonly problems: readonly [Problem, ...Problem[]]) {
    const [first] = problems
    const more = problems.length - MOST_TOLD
    const list = problems
      .slice(0, MOST_TOLD)
      .map(problem => `\n  - ${problem.message}`)
      .concat(more > 0 ? `\n  - and ${more} more` : [])
      .join('')
    super(
      problems.length === 1 ? first.code : 'CONFIG_INVALID',
      problems.length === 1 ? first.message : `${problems.length} settings are wrong:${list}`,
    )
  }
}

export function refuse([first, ...others]: readonly Problem[]): void {
  if (first) throw new ProblemsError([first, ...others])
}

/** What each check returns; if some of them throw, what all of those said. */
export function checkAll<T extends readonly unknown[]>(...checks: { [K in keyof T]: () => T[K] }): T {
  const problems: Problem[] = []
  const results = checks.map(check => {
    try {
      return check()
    } catch (error) {
      problems.push(...toProblems(error))
      return undefined
    }
  })
  refuse(problems)
  return results as unknown as T
}

/** What an error of ours says; any other is thrown on. */
export function toProblems(error: unknown): readonly Problem[] {
  if (error instanceof ProblemsError) return error.problems
  if (error instanceof LongshoreError) return [error]
  throw error
}

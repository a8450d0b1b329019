/**
 * Owns which handlers of a worker are stuck: their signal fired, and they have not returned within the grace. Their runs are over, but each keeps its
 * permit, over all lives of the worker, until it returns.
 */
import type { JobId } from '../job/job-id.ts'

interface StuckRun {
  readonly claimed: { readonly id: JobId }
  readonly handler: { readonly task: { readonly name: string } }
}

export interface StuckHandler {
  readonly job: JobId
  readonly task: string
  readonly since: Date
}

export class StuckHandlers {
  /** The oldest first. */
  readonly #since = new Map<StuckRun, Date>()

  get count(): number {
    return this.#since.size
  }

  get oldest(): StuckHandler | undefined {
    for (const [{ claimed, handler }, since] of this.#since)
      return { job: claimed.id, task: handler.task.name, since }
    return undefined
  }

  add(run: StuckRun): void {
    this.#since.set(run, new Date())
  }

  /** It has returned. */
  delete(run: StuckRun): void {
    this.#since.delete(run)
  }
}

/** Owns what a variant of longshore is put to: which tasks there are, and which limits and constraints. Travels as JSON. */
export interface Workload {
  /** How many tasks the workers serve; jobs go round them. Default one. */
  readonly tasks?: number
  /** So many of them have jobs. Default: all. */
  readonly busyTasks?: number
  /** The first `tasks` of them may have `concurrency` jobs running at once, each. */
  readonly limited?: { readonly tasks: number; readonly concurrency: number }
  /** Jobs with the same key that may run at once, of each task. */
  readonly concurrencyPerKey?: number
  /** Jobs go round these constraints, and the workers round these properties. */
  readonly constraints?: readonly Readonly<Record<string, string>>[]
  readonly properties?: readonly Readonly<Record<string, string>>[]
  /** What else there is in the database: SQL, run after the installation. */
  readonly sql?: string
}

/** Owns how many jobs a worker may run at once: which permits are taken, which are asked for, and what has ended since the last claim. */
export class Permits {
  /** Permits asked for in calls that are under way. */
  asked = 0
  /** Handlers that have returned since the last claim was sent. */
  ended = 0

  /** `taken`: by handlers of an earlier life that have not returned. */
  constructor(
    readonly max: number,
    public taken = 0,
  ) {}

  get areAllTaken(): boolean {
    return this.taken >= this.max
  }

  /** A claim of so many is sent. */
  ask(jobs: number): void {
    this.asked += jobs
    this.ended = 0
  }

  /** A claim of so many was answered, or has failed. */
  answered(jobs: number): void {
    this.asked -= jobs
  }

  /** Claimed jobs take a permit each, until their handlers have returned. */
  take(jobs: number): void {
    this.taken += jobs
  }

  /** A handler has returned. True: it was the first free permit. */
  free(): boolean {
    this.ended++
    return this.taken-- === this.max
  }
}

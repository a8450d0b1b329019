/** Owns the parent's side of a worker process. */
import { fork } from 'node:child_process'
import type { Surroundings } from '../peers/peer.ts'
import type { WorkerMessage } from './obey-parent.ts'

export interface ForkedWorker<Report> {
  readonly pid: number
  /** Jobs run so far, a few milliseconds old. */
  readonly ran: number
  /** Resolves when its code is loaded. */
  readonly loaded: Promise<void>
  /** Let it take jobs. */
  begin(): void
  /** Resolves when it takes jobs. */
  readonly ready: Promise<void>
  /** Rejects when the process ends before it is asked to. */
  readonly broken: Promise<never>
  /** Ends the process and brings its report. */
  finish(): Promise<Report>
  kill(): void
}

/** `program` is one that obeys its parent, by its path below `bench/`. */
export function forkWorker<Report>(
  program: string,
  order: { readonly surroundings: Surroundings },
): ForkedWorker<Report> {
  const file = `${order.surroundings.longshore}/bench/${program}.js`
  const child = fork(file, [JSON.stringify(order)], {
    execArgv: [],
    serialization: 'advanced',
  })
  let ran = 0
  let report: Report | undefined
  let onLoaded: () => void
  const loaded = new Promise<void>(resolve => {
    onLoaded = resolve
  })
  let onReady: () => void
  const ready = new Promise<void>(resolve => {
    onReady = resolve
  })
  child.on('message', (message: WorkerMessage<Report>) => {
    switch (message.kind) {
      case 'loaded':
        return onLoaded()
      case 'ready':
        return onReady()
      case 'count':
        ran = message.ran
        return
      case 'report':
        report = message.report
    }
  })
  const ended = new Promise<void>(resolve => child.once('exit', () => resolve()))
  const broken = ended.then(() => {
    if (report) return new Promise<never>(() => undefined)
    throw new Error(`the worker process ${child.pid} ended too early`)
  })
  /** Also told when nobody waits for it any more, which is no reason for this process to end. */
  const orBroken = (promise: Promise<void>) => {
    const either = Promise.race([promise, broken])
    either.catch(() => undefined)
    return either
  }
  broken.catch(() => undefined)
  return {
    pid: child.pid as number,
    get ran() {
      return ran
    },
    loaded: orBroken(loaded),
    begin() {
      child.send('begin')
    },
    ready: orBroken(ready),
    broken,
    async finish() {
      child.send('stop')
      await Promise.race([ended, broken])
      return report as Report
    },
    kill() {
      child.kill('SIGKILL')
    },
  }
}

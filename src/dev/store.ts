/** Owns the vocabulary of this folder: what a caller may ask of a store and what it gets. */
import { LongshoreError } from '../job/errors.ts'

export type Environment = Readonly<Record<string, string | undefined>>

export interface StoreOptions {
  /**
   * A server of its own, even if a connection string is set or Docker is asked for, so that it can be killed.
   * Default: false, or true when any option that shapes the server is given.
   */
  readonly own?: boolean
  /** Where its data is kept between starts. Default: a temporary folder, removed with `stop()` or with the process. */
  readonly dataDir?: string
  /** The port on 127.0.0.1. Default: a free one. */
  readonly port?: number
  /** Accept only TLS, with a certificate made for this start; `ca` is what clients trust. Default: false. */
  readonly tls?: boolean
  /** Told of work that takes seconds, such as unpacking a server. Default: silent. */
  readonly progress?: (line: string) => void
  /** Where connection strings, choices, PATH and HOME are read from. Default: `process.env`. */
  readonly env?: Environment
}

export interface Store {
  readonly url: string
  /** The server's version, such as `18.4`. */
  readonly version: string
  /** One sentence: which server this is and why. */
  readonly choice: string
  /** Of the server, while it runs and is ours. */
  readonly pid: number | undefined
  /** Where its data lies, if the server is ours. */
  readonly dataDir: string | undefined
  /** The certificate (PEM) to trust, if it speaks TLS. */
  readonly ca: string | undefined
  /** Stops it gracefully and removes what was temporary. May be called again. */
  stop(): Promise<void>
  /** Ends the server and its children with SIGKILL and keeps its data, as a crash would. */
  kill(): Promise<void>
  /** Starts it again on the same port and data after `kill()`; one that runs is stopped first. */
  restart(): Promise<void>
}

/** A store whose process is not ours. */
export function foreignStore(store: Pick<Store, 'url' | 'version' | 'choice'>, stop = async () => {}): Store {
  const refuse = async () => {
    throw new LongshoreError(
      'STORE_UNSUPPORTED',
      `${store.choice} is not a process of longshore: ask for one with { own: true }`,
    )
  }
  return { ...store, pid: undefined, dataDir: undefined, ca: undefined, stop, kill: refuse, restart: refuse }
}

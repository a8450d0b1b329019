/**
 * Owns the secrets by which a worker and the leader prove who they are, see `fits_secret.sql`. They live in memory and travel as
 * parameters of statements: no log, error, setting or job thread is given one.
 */
import { randomBytes } from 'node:crypto'

/** One life of a worker. Without a secret: a person with all rights acts for it by hand. */
export interface WorkerKey {
  readonly id: number
  readonly secret: string | null
}

/** The process that takes the lease. Without a secret: as above. */
export interface Holder {
  readonly name: string
  readonly secret: string | null
}

/** As Postgres reads bytes. */
export const newSecret = () => `\\x${randomBytes(16).toString('hex')}`

/**
 * Owns how Postgres tells this process of what it waits for: the name that goes into rows of `awaited`, and the connection that listens
 * on the channel of that name. It is opened when it is first needed.
 */
import { randomBytes } from 'node:crypto'
import { type Listener, openListener, POOLED } from '../postgres/listener.ts'
import type { PostgresConfig } from '../postgres/postgres-config.ts'
import { channelName } from '../postgres/schema-name.ts'
import type { patient } from '../postgres/unavailable.ts'
import type { Logger } from '../runtime/logger.ts'

export interface WaiterChannel {
  /** As rows of `awaited` name it. */
  readonly waiter: string
  /** Resolves when it listens. */
  open(): Promise<void>
  close(): Promise<void>
}

export function createWaiterChannel(options: {
  /** Where notifications come from. */
  listen: PostgresConfig
  schema: string
  patiently: ReturnType<typeof patient>
  logger: Logger
  /** What the connection does, for the log. */
  purpose: string
  onNotify(text: string): void
  /** Notifications may have been missed. */
  onGap(): void
}): WaiterChannel {
  const { logger } = options
  const waiter = randomBytes(8).readBigUInt64BE().toString(36).slice(0, 11)
  let listener: Promise<Listener> | undefined

  const listen = () => {
    listener ??= openListener({
      postgres: options.listen,
      onPooled: () => logger.info(POOLED),
      channels: [channelName(options.schema, `waiter_${waiter}`)],
      onNotify: (_, text) => options.onNotify(text),
      onGap: options.onGap,
      onError: error =>
        logger.warn({ err: error }, `the connection that ${options.purpose} broke; reconnecting`),
    }).catch(error => {
      listener = undefined
      throw error
    })
    return listener
  }

  return {
    waiter,
    async open() {
      await options.patiently(listen)
    },
    async close() {
      const opened = await listener
      await opened?.close()
    },
  }
}

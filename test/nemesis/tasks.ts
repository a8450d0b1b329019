/** The tasks of a run under faults. Their limits change while it goes on, so they are made for the limits of the day. */
import { defineTask } from '../../src/index.ts'
import type { Payload } from './evidence.ts'

export interface Limits {
  capped: number
  tenant: number
  perTenant: number
}

export const FIRST_LIMITS: Limits = { capped: 5, tenant: 8, perTenant: 2 }

/** Tries enough for every fault: a job that gives up for want of them would be a finding. */
const retry = { maxAttempts: 200, maxRescues: 200, backoff: { type: 'fixed', delay: 20, jitter: 1 } } as const

export const plain = defineTask<Payload>({ name: 'plain', retry })
export const part = defineTask<Payload>({ name: 'part', retry })
export const capped = (limits: Limits) =>
  defineTask<Payload>({ name: 'capped', concurrency: limits.capped, retry })
export const tenant = (limits: Limits) =>
  defineTask<Payload>({
    name: 'tenant',
    concurrency: limits.tenant,
    concurrencyPerKey: limits.perTenant,
    retry,
  })

export const allTasks = (limits: Limits) => [plain, part, capped(limits), tenant(limits)]

/** What jobs ask for, and what workers have; together two workers with the last ones can run everything. */
export const ASKED = [
  { gpu: 'a100' },
  { gpu: 'h100' },
  { region: 'eu' },
  { gpu: 'a100', region: 'eu' },
] as const
export const HAD = [
  {},
  { gpu: 'a100' },
  { region: 'eu' },
  { gpu: 'h100', region: 'eu' },
  { gpu: 'a100', region: 'eu' },
] as const

/** Owns the end of a run: the faults are over, producers leave, everything drains, then everybody leaves. */
import { setTimeout as pause } from 'node:timers/promises'
import type { Producer } from '../../src/index.ts'
import { eventually } from '../support/signals.ts'
import type { TheCast } from './cast.ts'
import type { Cast } from './plan.ts'
import type { Stage } from './stage.ts'
import type { Find } from './total-queue.ts'

const DRAIN_MS = 120_000
const BETWEEN_LOOKS_MS = 50

/** A failure has halted them, and nobody else lets them go on. */
export async function resumeHalted(stage: Stage, control: Producer): Promise<void> {
  const halted = await stage.rows<{ key: string }>(
    'select key from longshore.workflows where halted_by is not null',
  )
  for (const { key } of halted) await control.resumeWorkflow(key)
}

/** The faults are over: producers end what they do and leave, then nothing may be left unfinished. */
export async function settleDown(
  stage: Stage,
  cast: TheCast,
  roles: Cast,
  control: Producer,
  find: Find,
): Promise<void> {
  await Promise.all(cast.places.map(place => place.untilRunning()))
  await leaveAll(cast, roles.producers, { finish: true }, find)
  const isDrained = async () => {
    await pause(BETWEEN_LOOKS_MS)
    await resumeHalted(stage, control)
    const [left] = await stage.rows<{ jobs: boolean; groups: boolean; outbox: boolean }>(
      `select exists (select from longshore.jobs) as jobs, exists (select from longshore.outbox) as outbox,
         exists (select from longshore.groups where finished_at is null) as groups`,
    )
    return !left?.jobs && !left?.groups && !left?.outbox
  }
  await eventually('everything has drained', isDrained, DRAIN_MS).catch(async error => {
    const left = await stage.rows<{ id: string }>('select id from longshore.jobs order by id limit 10')
    find('it does not drain', 'everybody', (error as Error).message)
    for (const { id } of left) find('it does not drain', id, JSON.stringify(await control.explain(id)))
  })
}

export async function leaveAll(
  cast: TheCast,
  slots: readonly string[],
  by: 'SIGTERM' | { finish: true },
  find: Find,
): Promise<void> {
  await Promise.all(
    slots.map(async slot => {
      const place = cast.place(slot)
      const how = await place.leave(by)
      if (how !== 0) find('a process did not leave in peace', place.name, String(how))
    }),
  )
}

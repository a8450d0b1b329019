/** Owns the doing of faults: each at its time, on whoever has the place then, and a line in the journal of what was done. */
import { setTimeout as pause } from 'node:timers/promises'
import { createProducer, setQueue } from '../../src/index.ts'
import type { StoreProxy } from '../support/proxy.ts'
import type { TheCast } from './cast.ts'
import { type FaultLine, trueNow } from './evidence.ts'
import type { Fault, StoreName } from './plan.ts'
import type { Stage } from './stage.ts'
import { allTasks, FIRST_LIMITS, type Limits, plain } from './tasks.ts'

/** What processes that start now are to begin with. */
export interface Circumstances {
  limits: Limits
  properties: Map<string, Record<string, string>>
  clocks: Map<string, number>
}

export function firstCircumstances(properties: Map<string, Record<string, string>>): Circumstances {
  return { limits: FIRST_LIMITS, properties, clocks: new Map() }
}

/** A lost reply is waited for that long. */
const LOSE_MS = 5000

class Missed extends Error {}

export function createFaults(
  stage: Stage,
  cast: TheCast,
  circumstances: Circumstances,
  note: (line: FaultLine) => void,
) {
  /** Places where a process is on its way out. */
  const leaving = new Set<string>()
  const paused = new Set<string>()
  /** Stores that are away. */
  const away = new Set<StoreName>()
  const under: Promise<void>[] = []

  const present = (slot: string) => {
    const place = cast.place(slot)
    if (!place.isRunning || leaving.has(slot)) throw new Missed('nobody is there')
    return place
  }
  const linksOf = (store: StoreName, slot?: string): StoreProxy[] =>
    slot === undefined ? stage.links(store) : [stage.link(slot, store)]

  const during = async <Name>(set: Set<Name>, name: Name, work: () => Promise<unknown>) => {
    if (set.has(name)) throw new Missed(`${name} is away`)
    set.add(name)
    try {
      await work()
    } finally {
      set.delete(name)
    }
  }

  const carryOut = async (fault: Fault): Promise<void> => {
    switch (fault.kind) {
      case 'kill': {
        const place = present(fault.slot)
        return during(leaving, fault.slot, () => place.kill(fault.ms))
      }
      case 'stop': {
        const place = present(fault.slot)
        if (paused.has(fault.slot)) throw new Missed('it is paused')
        return during(leaving, fault.slot, () => place.stop())
      }
      case 'pause': {
        const place = present(fault.slot)
        return during(paused, fault.slot, async () => {
          place.pause()
          await pause(fault.ms)
          place.resume()
        })
      }
      case 'clock':
        circumstances.clocks.set(fault.slot, fault.offsetMs)
        return present(fault.slot).order({ clockOffsetMs: fault.offsetMs })
      case 'properties': {
        const own = circumstances.properties.get(fault.slot) ?? {}
        present(fault.slot).order({ properties: fault.had })
        await pause(fault.ms)
        return cast.place(fault.slot).order({ properties: own })
      }
      case 'drain':
        present(fault.slot).order({ isDrained: true })
        await pause(fault.ms)
        return cast.place(fault.slot).order({ isDrained: false })
      case 'spread':
        await setQueue({
          postgres: stage.postgres.url,
          name: 'default',
          scheduleMode: fault.mode,
          balanceStrategy: fault.strategy,
        })
        return
      case 'limits':
        circumstances.limits = fault.limits
        return setLimits(stage, fault.limits)
      case 'flush':
        await stage.command(fault.command, ...(fault.command === 'SCRIPT' ? ['FLUSH'] : []))
        return
      case 'crash':
        return during(away, fault.store, async () => {
          await stage[fault.store].kill()
          await pause(fault.ms)
          await stage[fault.store].restart()
        })
      case 'cut':
        for (const link of linksOf(fault.store, fault.slot)) link.leadTo(stage[fault.store].url)
        return
      case 'hole': {
        const links = linksOf(fault.store, fault.slot)
        for (const link of links) link.holdAll()
        await pause(fault.ms)
        for (const link of links) {
          link.letFlow()
          if (fault.isCutAfter) link.leadTo(stage[fault.store].url)
        }
        return
      }
      case 'swallow': {
        const link = stage.link(fault.slot, fault.store)
        link.swallow(fault.direction)
        await pause(fault.ms)
        return link.letFlow()
      }
      case 'slow': {
        const links = linksOf(fault.store, fault.slot)
        for (const link of links) link.delay(fault.byMs)
        await pause(fault.ms)
        for (const link of links) link.delay(0)
        return
      }
      case 'lose': {
        present(fault.slot)
        const link = stage.link(fault.slot, 'postgres')
        const lost = fault.isDone ? link.loseReplyTo(fault.text) : link.loseRequest(fault.text)
        const isLost = await Promise.race([lost.then(() => true), pause(LOSE_MS, false)])
        if (!isLost) throw new Missed('nobody said it')
      }
    }
  }

  const begin = async (fault: Fault): Promise<void> => {
    const from = trueNow()
    const slot = 'slot' in fault ? fault.slot : undefined
    // Who is there now; who comes after has not suffered it.
    const targets = slot === undefined ? [] : [cast.place(slot).name]
    const kind = 'store' in fault ? `${fault.kind} ${fault.store}` : fault.kind
    let missed: string | undefined
    try {
      await carryOut(fault)
    } catch (error) {
      missed = (error as Error).message
    }
    note({ kind, targets, from, to: trueNow(), ...(missed === undefined ? {} : { missed }) })
  }

  return {
    /** Resolves when all are over. */
    async play(faults: readonly Fault[]): Promise<void> {
      const since = performance.now()
      for (const fault of faults) {
        await pause(Math.max(0, fault.at - (performance.now() - since)))
        under.push(begin(fault))
      }
      await Promise.all(under)
    },
  }
}

/** As a deployment with other numbers in its code would. */
async function setLimits(stage: Stage, limits: Limits): Promise<void> {
  const producer = createProducer({ postgres: stage.postgres.url, tasks: allTasks(limits) })
  try {
    await producer.enqueueMany(plain, [])
  } finally {
    await producer.close()
  }
}

/** Owns turning options into shapes: a task's own, without options, is made once. */
import { type JobOptions, type Shape, toShape } from '../job/enqueue-options.ts'
import type { Task } from '../job/task.ts'
import { isPlain, shapeText } from '../postgres/enqueue-jobs.ts'

/** A shape and how it travels, see `NewJob`. */
export interface Shaped {
  shape: Shape
  text: string
  plain: Shape | undefined
}

export interface JobShapes {
  of(task: Task, options: JobOptions): Shaped
  /** Of a job without options. */
  withDefaults(task: Task): Shaped
}

export function createJobShapes(): JobShapes {
  const known = new WeakMap<Task, Shaped>()
  const of = (task: Task, options: JobOptions): Shaped => {
    const shape = toShape(task, options)
    return { shape, text: shapeText(shape), plain: isPlain(shape) ? shape : undefined }
  }
  return {
    of,
    withDefaults(task) {
      const shaped = known.get(task) ?? of(task, {})
      known.set(task, shaped)
      return shaped
    },
  }
}

/** `longshore groups`: the groups that have not ended, or one with its jobs; and cancel it. */
import type { Command } from 'commander'
import { LongshoreError } from '../job/errors.ts'
import type { GroupStatus } from '../job/group.ts'
import { cancelGroup, readGroups } from '../postgres/groups.ts'
import { type GroupJobs, type JobOfGroup, listGroups, readGroupJobs } from '../postgres/list-groups.ts'
import { withPool } from '../postgres/once.ts'
import { addDatabaseOptions, type DatabaseOptions, requireDatabaseUrl, toId, toLimit } from './options.ts'
import { print, printJson } from './output.ts'

type Options = DatabaseOptions & { all?: boolean; cancel?: boolean; json?: boolean; limit: number }

export function addGroupsCommand(program: Command): void {
  const command = program
    .command('groups')
    .argument('[group-id]', 'the group to look at')
    .description('list the groups that have not ended, newest first; show one with its jobs; or cancel one')
    .option('--all', 'list those that have ended as well')
    .option('--cancel', 'cancel what is left of the group: what runs is told, the rest never starts')
    .option('--limit <n>', 'groups to list, or jobs to name', toLimit, 50)
    .option('--json', 'print it as JSON')
  addDatabaseOptions(command).action(async (text: string | undefined, options: Options) => {
    const { limit, json, schema: given } = options
    const where = { postgres: requireDatabaseUrl(options), schema: given }
    if (text === undefined) {
      if (options.cancel) {
        throw new LongshoreError(
          'CONFIG_INVALID',
          'name the group to cancel: longshore groups <group-id> --cancel',
        )
      }
      const groups = await withPool(where, (pool, schema) =>
        listGroups(pool, schema, { all: options.all ?? false, limit }),
      )
      if (json) printJson({ schema: given, groups })
      else if (groups.length > 0) print(...groups.map(describe))
      else
        print(
          options.all ? 'there are no groups' : 'no group is unfinished; --all lists those that have ended',
        )
      return
    }
    const id = toId('group', text)
    await withPool(where, async (pool, schema) => {
      if (options.cancel) {
        const answer = await cancelGroup(pool, schema, id)
        if (answer === 'unknown') throw notFound(id, schema)
        if (json) printJson({ schema: given, id, answer })
        else print(`group ${id}: ${CANCEL_ANSWERS[answer]}`)
        return
      }
      const [group] = await readGroups(pool, schema, [id])
      if (!group) throw notFound(id, schema)
      const jobs = await readGroupJobs(pool, schema, id, limit)
      if (json) printJson({ schema: given, group, ...jobs })
      else print(...describeOne(group, jobs))
    })
  })
}

const CANCEL_ANSWERS = {
  cancelled: 'cancelled, nothing of it is left',
  cancelling: 'being cancelled; the jobs that run have been told',
  finished: 'had ended before, nothing was changed',
}

const notFound = (id: string, schema: string) =>
  new LongshoreError(
    'GROUP_NOT_FOUND',
    `there is no group ${id} in schema "${schema}": \`longshore groups --all\` lists those that there are`,
  )

function describe(group: GroupStatus): string {
  const { id, name, state, counts, createdAt, finishedAt, stuck } = group
  const told = Object.entries(counts).flatMap(([of, count]) => (count > 0 ? [`${count} ${of}`] : []))
  const age = finishedAt
    ? `took ${shownAge(createdAt, finishedAt)}`
    : `submitted ${shownAge(createdAt, new Date())} ago`
  return [
    `${id}${name === null ? '' : ` ${name}`}: ${state}`,
    told.join(', '),
    age,
    ...(stuck ? ['stuck'] : []),
  ].join('; ')
}

function describeOne(group: GroupStatus, { tasks, jobs }: GroupJobs): string[] {
  const { stuck } = group
  const lines = [describe(group)]
  for (const { state, task, count } of tasks) lines.push(`  ${count} ${state} of ${task}`)
  if (jobs.length > 0) lines.push('jobs that have not succeeded:', ...jobs.map(describeJob))
  const unnamed =
    tasks.reduce((sum, of) => (of.state === 'succeeded' ? sum : sum + of.count), 0) - jobs.length
  if (unnamed > 0) lines.push(`  and ${unnamed} more: --limit names more of them`)
  if (stuck) {
    lines.push(`stuck: nothing has changed since ${stuck.since}`)
    for (const { id, task, state, reason } of stuck.jobs) lines.push(`  ${id} ${task}, ${state}: ${reason}`)
  }
  return lines
}

function describeJob({ id, task, state, workerId, reason }: JobOfGroup): string {
  const where = state === 'running' ? ` on worker ${workerId}` : ''
  return `  ${id} ${task}, ${state}${where}${reason === null ? '' : `: ${reason}`}`
}

function shownAge(from: Date, to: Date): string {
  const seconds = Math.max(0, Math.round((to.getTime() - from.getTime()) / 1000))
  if (seconds < 120) return `${seconds}s`
  if (seconds < 7200) return `${Math.floor(seconds / 60)}m`
  if (seconds < 172_800) return `${Math.floor(seconds / 3600)}h`
  return `${Math.floor(seconds / 86_400)}d`
}

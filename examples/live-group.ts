import { createProducer, createWorker, defineTask, migrate, NonRetryableError } from 'longshore'
import pg from 'pg'
import { z } from 'zod'

const postgres = process.env.DATABASE_URL ?? 'postgres://localhost/app'
await migrate({ postgres })
const client = new pg.Client(postgres)
await client.connect()
await client.query('create table if not exists videos (id int primary key)')

const split = defineTask<{ video: number; parts: number }>({ name: 'split' })
const convert = defineTask({
  name: 'convert',
  payload: z.object({ part: z.number() }),
  result: z.object({ seconds: z.number() }),
})
const merge = defineTask({
  name: 'merge',
  payload: z.object({ video: z.number() }),
  result: z.object({ seconds: z.number() }),
})
const producer = createProducer({ postgres })

const worker = createWorker({
  postgres,
  handlers: [
    split.handle(async ({ payload: { video, parts } }, ctx) => {
      const group = await ctx.groupId()
      if (group === null) throw new NonRetryableError('split is for groups')
      await ctx.complete(async tx => {
        const more = producer.addToGroup(group)
        const converted = Array.from({ length: parts }, (_, part) => more.add(convert, { part }))
        more.add(merge, { video }, { after: converted })
        await more.submit({ tx })
      })
    }),
    convert.handle(({ payload }) => ({ seconds: 60 + payload.part })),
    merge.handle(async (_, ctx) => {
      let seconds = 0
      for (const part of await ctx.parents.of(convert)) seconds += part.result?.seconds ?? 0
      console.log(seconds, 'seconds')
      return { seconds }
    }),
  ],
})

const film = producer.group({ name: 'film 1' })
film.add(split, { video: 1, parts: 3 })
const stopWatching = await producer.watchGroups(({ id, event }) => {
  if (id === film.id) console.log('the film:', event)
})
await client.query('begin')
await client.query('insert into videos values (1)')
await film.submit({ tx: client })
await client.query('commit')

const mistake = producer.group({ name: 'film 2' })
mistake.add(split, { video: 2, parts: 3 }, { delay: '1h' })
await mistake.submit()
console.log(await producer.cancelGroup(mistake)) // cancelled

await worker.start()
const ended = await producer.waitForGroup(film, { timeout: '10s' })
console.log(ended.name, ended.state, ended.counts.succeeded) // film 1 succeeded 5

stopWatching()
await worker.stop()
await producer.close()
await client.end()

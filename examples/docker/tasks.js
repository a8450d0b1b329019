/** The handlers that docker-compose.yml mounts into its worker: an example to replace by your own. */
import { defineTask } from 'longshore'

const greet = defineTask({ name: 'greet' })

export default [
  greet.handle(async job => {
    const greeting = `Hello, ${job.payload?.name ?? 'world'}!`
    console.log(greeting)
    return { greeting }
  }),
]

import { createServer } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { startPostgres, startRedis } from '../../src/dev/index.ts'
import { bareEnv, testFolder } from './machine.ts'

describe('LONGSHORE_STORES=docker', () => {
  it('names the socket and the way out when no engine is there', async () => {
    const socket = join(await testFolder(), 'docker.sock')
    const env = bareEnv({ LONGSHORE_STORES: 'docker', DOCKER_HOST: `unix://${socket}` })
    for (const start of [startPostgres, startRedis]) {
      await expect(start({ env })).rejects.toMatchObject({
        code: 'STORE_UNAVAILABLE',
        message: expect.stringMatching(
          /docker\.sock: ENOENT\): start Docker, set DOCKER_HOST, or unset LONGSHORE_STORES/,
        ),
      })
    }
  })

  it('gives up on an engine that accepts but never answers', async () => {
    const socket = join(await testFolder(), 'docker.sock')
    const silent = createServer(() => {}).listen(socket)
    onTestFinished(() => void silent.close())
    const env = bareEnv({ LONGSHORE_STORES: 'docker', DOCKER_HOST: `unix://${socket}` })
    await expect(startRedis({ env })).rejects.toThrow(/no answer within 2000 ms/)
  })

  it('is the only choice of that name', async () => {
    await expect(startRedis({ env: bareEnv({ LONGSHORE_STORES: 'podman' }) })).rejects.toMatchObject({
      code: 'CONFIG_INVALID',
    })
  })
})

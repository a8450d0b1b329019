import { describe, expect, it } from 'vitest'
import { checkServerVersion } from '../../src/postgres/server-version.ts'

const server = (number: number) => ({ query: async () => ({ rows: [{ number }] }) })

describe('the version of Postgres', () => {
  it('is refused below 14, with what to do', async () => {
    await expect(checkServerVersion(server(130_014))).rejects.toMatchObject({
      code: 'STORE_UNSUPPORTED',
      message: 'Postgres 13 is too old: longshore needs Postgres 14 or newer; upgrade the server',
    })
  })

  it.each([140_000, 150_018, 180_004])('%i is accepted', async number => {
    await expect(checkServerVersion(server(number))).resolves.toBeUndefined()
  })
})

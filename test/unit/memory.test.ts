import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { afterEach, describe, expect, it } from 'vitest'
import { createMemoryGauge, systemShare } from '../../src/runtime/memory.ts'

let root = ''
afterEach(() => rmSync(root, { recursive: true, force: true }))

function system(files: Record<string, string>): string {
  root = mkdtempSync(join(tmpdir(), 'memory-'))
  for (const [path, text] of Object.entries(files)) {
    const file = join(root, path)
    mkdirSync(dirname(file), { recursive: true })
    writeFileSync(file, text)
  }
  return root
}

const meminfo = 'MemTotal:       1000 kB\nMemFree:  10 kB\nMemAvailable:    600 kB\n'
const stat = 'anon 5\ninactive_file 100\nactive_file 7\n'

describe('[W9] the share of memory', () => {
  it.each<[string, Record<string, string>, number]>([
    [
      'is that of a limit of version 2, without files',
      {
        'proc/self/cgroup': '0::/\n',
        'sys/fs/cgroup/memory.max': '1000\n',
        'sys/fs/cgroup/memory.current': '900\n',
        'sys/fs/cgroup/memory.stat': stat,
      },
      0.8,
    ],
    [
      'is that of the tightest group above',
      {
        'proc/self/cgroup': '0::/a/b\n',
        'sys/fs/cgroup/a/memory.max': '400\n',
        'sys/fs/cgroup/a/memory.current': '300\n',
        'sys/fs/cgroup/a/b/memory.max': '1000\n',
        'sys/fs/cgroup/a/b/memory.current': '300\n',
        'proc/meminfo': meminfo,
      },
      0.75,
    ],
    [
      'is that of the top where the path is the host’s',
      {
        'proc/self/cgroup': '0::/kubepods/pod1/c1\n',
        'sys/fs/cgroup/memory.max': '1000\n',
        'sys/fs/cgroup/memory.current': '500\n',
      },
      0.5,
    ],
    [
      'is that of a limit of version 1',
      {
        'proc/self/cgroup': '5:devices:/x\n4:cpu,memory:/x\n0::/\n',
        'sys/fs/cgroup/memory/x/memory.limit_in_bytes': '1000\n',
        'sys/fs/cgroup/memory/x/memory.usage_in_bytes': '800\n',
        'sys/fs/cgroup/memory/x/memory.stat': 'inactive_file 1\ntotal_inactive_file 100\n',
        'proc/meminfo': meminfo,
      },
      0.7,
    ],
    [
      'is that of the machine where version 1 has no limit',
      {
        'proc/self/cgroup': '4:memory:/\n',
        'sys/fs/cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
        'sys/fs/cgroup/memory/memory.usage_in_bytes': '800\n',
        'proc/meminfo': meminfo,
      },
      0.4,
    ],
    [
      'is that of the machine where version 2 has no limit',
      {
        'proc/self/cgroup': '0::/\n',
        'sys/fs/cgroup/memory.max': 'max\n',
        'sys/fs/cgroup/memory.current': '800\n',
        'proc/meminfo': meminfo,
      },
      0.4,
    ],
    ['is unknown, and so nothing, on other systems', {}, 0],
  ])('%s', (_, files, share) => {
    expect(systemShare(system(files))).toBeCloseTo(share, 10)
  })

  it('is that of the heap when that is larger', () => {
    const gauge = createMemoryGauge(system({}))
    const before = gauge()
    expect(before).toBeGreaterThan(0)
    const held = Array.from({ length: 2_000_000 }, (_, n) => ({ n }))
    expect(createMemoryGauge(root)()).toBeGreaterThan(before)
    expect(held.length).toBe(2_000_000)
  })

  it('is read anew after a while', async () => {
    const folder = system({
      'proc/self/cgroup': '0::/\n',
      'sys/fs/cgroup/memory.max': '1000\n',
      'sys/fs/cgroup/memory.current': '500\n',
    })
    const gauge = createMemoryGauge(folder)
    expect(gauge()).toBeCloseTo(0.5, 10)
    writeFileSync(join(folder, 'sys/fs/cgroup/memory.current'), '990\n')
    await expect.poll(gauge).toBeCloseTo(0.99, 10)
  })
})

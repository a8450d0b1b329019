import { describe, expect, it } from 'vitest'
import { allScripts, parseScript, runScript } from '../../src/redis/scripts.ts'

const SOURCE = `#!lua flags=allow-oom
--- sum: adds.
--- @key root
--- @use more parts
--- @arg first       {int} a number
--- @arg second      {int?} another, not @arg third
--- @items           id {text}, count {int}: further ones
--- @returns         {code}
return { arg.first + arg.second }`

describe('the header of a script', () => {
  const script = parseScript('sum', SOURCE, part => `-- ${part} stands here`)

  it('names the arguments by their order', () => {
    expect(script.args).toEqual(['first', 'second'])
    expect(script.text.split('\n')[1]).toBe('local arg, items = { first = ARGV[1], second = ARGV[2] }, 3')
  })

  it('keeps the flags first, and puts the shared parts in front of the body', () => {
    const lines = script.text.split('\n')
    expect(lines[0]).toBe('#!lua flags=allow-oom')
    expect(lines.slice(2, 5)).toEqual(['-- queue stands here', '-- more stands here', '-- parts stands here'])
    expect(lines.at(-1)).toBe('return { arg.first + arg.second }')
  })

  it('must begin with the shebang', () => {
    expect(() => parseScript('sum', SOURCE.slice(1), () => '')).toThrow('lua/sum.lua must begin with #!lua')
  })
})

describe('running a script', () => {
  const script = parseScript('sum', SOURCE, () => '')

  it('passes named arguments in their order, and items behind them', async () => {
    const calls: unknown[][] = []
    const runner = { evalsha: async (...call: unknown[]) => calls.push(call) }
    await runScript(runner, script, 'root', { second: 2, first: 1 }, ['x', '3'])
    expect(calls).toEqual([[script.sha, 1, 'root', '1', '2', 'x', '3']])
  })

  it('passes the largest number that Lua can tell from its neighbours', async () => {
    const runner = { evalsha: async () => ['OK'] }
    expect(await runScript(runner, script, 'root', { first: 2 ** 53 - 1, second: '' })).toEqual(['OK'])
  })

  it('refuses a call without one of them', async () => {
    const runner = { evalsha: async () => [] }
    await expect(runScript(runner, script, 'root', { first: 1 })).rejects.toThrow('lua/sum.lua needs second')
  })

  it.each<[first: string | number, items: string[], problem: string]>([
    [Number.NaN, [], 'lua/sum.lua: first must be {int}; got "NaN"'],
    [-1, [], 'first must be {int}; got "-1"'],
    [1e21, [], 'first must be {int}; got "1e+21"'],
    ['9007199254740992', [], 'first must be {int}; got "9007199254740992"'],
    ['', [], 'first must be {int}; got ""'],
    ['1\n', [], 'first must be {int}'],
    [1, ['x'], 'lua/sum.lua takes items of 2 parts; got 1'],
    [1, ['x', '1', '', '2'], 'id must be {text}; got ""'],
    [1, ['x', '1.5'], 'count must be {int}; got "1.5"'],
  ])('refuses %j with items %j before anything is sent', async (first, items, problem) => {
    let calls = 0
    const runner = { evalsha: async () => calls++ }
    const call = runScript(runner, script, 'root', { first, second: '' }, items)
    await expect(call).rejects.toThrow(problem)
    expect(calls).toBe(0)
  })

  it('must know of which kind each argument is', () => {
    const untyped = SOURCE.replace('{int} a number', 'a number')
    expect(() => parseScript('sum', untyped, () => '')).toThrow('must say of which kind')
  })
})

describe('the scripts of the package', () => {
  it('each tell what they do, take the root key, and tell what they answer', () => {
    for (const [name, { text }] of allScripts()) {
      expect(text).toMatch(new RegExp(`^--- ${name}: `, 'm'))
      expect(text).toMatch(/^--- @key root$/m)
      expect(text).toMatch(/^--- @returns {2,}\{code/m)
    }
  })
})

/** The red side of the random histories: without a guard of the scripts they must go wrong, or they prove nothing of it. */
import { describe, expect, it } from 'vitest'
import type { Spread } from '../../src/redis/queue-index.ts'
import { runHistory } from '../support/index-history.ts'
import { useRedis } from '../support/redis.ts'
import { type ScriptWeakness, weakenedRunner } from '../support/weaken-script.ts'

const redis = useRedis()
const FANOUT: Spread = { width: 0, strategy: 'least-queue' }
const BALANCED: Spread = { width: 1, strategy: 'least-queue' }
const HISTORIES = 8
const STEPS = 300

const guards: [string, Spread, ScriptWeakness, RegExp][] = [
  [
    'a job that leaves Redis leaves every queue',
    FANOUT,
    {
      remove: "  redis.call('HDEL', jobs_key, id)\n  drop_copies(id)\n",
      replacement: "  redis.call('HDEL', jobs_key, id)\n",
    },
    /copies|queue of|bound of|reverse index|takes|got boolean/,
  ],
  [
    'a job that is taken leaves the queues of others',
    FANOUT,
    {
      remove: "    bulk('ZREM', prefix .. 'queue:' .. holder, ids)\n",
    },
    /copies|got boolean/,
  ],
  [
    'a queue that lets its tail go is complete only up to there',
    FANOUT,
    { remove: '  lower_bound(worker, tail[2], tail[1])\n' },
    /complete|bound of/,
  ],
  [
    'a full queue that passes by a job is complete only up to there',
    FANOUT,
    { remove: '  lower_bound(worker, score, id)\n' },
    /complete|bound of/,
  ],
  [
    'a worker that registers beside jobs has looked at nothing',
    FANOUT,
    { remove: "if has_jobs then set_worker_bound(me, '-1', '') end\n" },
    /complete|takes|bound of/,
  ],
  [
    'a job that nobody holds any more is before nobody’s bound',
    BALANCED,
    { remove: '    if known then nobody_holds(known.kind, tail[2], tail[1]) end\n' },
    /complete|bound of|takes|slept/,
  ],
  [
    'what a worker leaves behind is offered to others',
    BALANCED,
    { remove: '      copy(id, lane.kind, score)\n      ring(lane.kind)\n' },
    /complete|queue of|takes/,
  ],
  [
    'a late word of a job that is taken is not heard',
    FANOUT,
    {
      remove: "    if how ~= 'audit' and newer <= 0 and not is_changed then return 'taken' end\n",
    },
    /placed|refilled|taken|takes/,
  ],
  [
    'a job that has changed since it was taken stands where the relay says',
    FANOUT,
    { remove: "(how == 'relay' or how == 'check') and newer == 0 and", replacement: 'false and' },
    /placed|refilled|taken|takes/,
  ],
  [
    'a job behind the bound of its lane stays out',
    FANOUT,
    {
      remove: "  if not is_before_bound(tonumber(score), id, lane) then return 'beyond' end\n",
    },
    /window|placed|takes|bound of lane/,
  ],
  [
    'a lane that lets its tail go is known only up to there',
    FANOUT,
    { remove: '    set_lane_bound(lane, tail[2], tail[1])\n' },
    /bound of lane|placed/,
  ],
  [
    'a limit that opens or closes does so for all lanes under it',
    FANOUT,
    { remove: '    if (known > 0) ~= (free > 0) then\n', replacement: '    if false then\n' },
    /heads|takes/,
  ],
  [
    'a job under a limit is not taken without a slot',
    FANOUT,
    {
      remove: 'if lane and not lane.is_plain and not can_start(lane) then\n',
      replacement: 'if false then\n',
    },
    /takes/,
  ],
  [
    'a slot that is freed wakes somebody who waits for it',
    FANOUT,
    { remove: '    ring_for_slots(limit, math.min(free, free - before_call) - (rung[limit] or 0))\n' },
    /slept/,
  ],
  [
    'a job that becomes ready wakes somebody',
    BALANCED,
    {
      remove: "    ring(lane.kind, is_lone and table.concat({ generation, id, number, token }, ' '))\n",
    },
    /slept/,
  ],
  [
    'an old offer does not take what is ready again',
    FANOUT,
    { remove: 'if token == arg.token then\n', replacement: 'if token then\n' },
    /placed|taken|takes|lane \d+|queue of/,
  ],
  [
    'a job that was offered leaves the queues of others',
    FANOUT,
    { remove: "    redis.call('ZREM', prefix .. 'queue:' .. holder, arg.id)\n" },
    /copies|queue of|reverse index|takes|got boolean/,
  ],
  [
    'whoever takes what it was offered beside other jobs is not idle',
    FANOUT,
    { remove: 'if tonumber(arg.limit) > 1 and not has_more then\n', replacement: 'do\n' },
    /slept|bound of|complete/,
  ],
  [
    'nothing is taken from beyond the edge',
    FANOUT,
    { remove: '  elseif is_beyond_edge(cursor) then\n', replacement: '  elseif false then\n' },
    /takes/,
  ],
  [
    'a lane without slots holds nothing up',
    FANOUT,
    { remove: '  while edges[1] and not can_start(edges[#edges]) do edges[#edges] = nil end\n' },
    /takes|slept/,
  ],
  [
    'a worker that stops at the edge has not looked at everything',
    FANOUT,
    { remove: '  if #picked < limit and not is_at_edge then\n', replacement: '  if #picked < limit then\n' },
    /complete|bound of|takes/,
  ],
  [
    'whoever stopped at the edge is woken when it moves',
    BALANCED,
    { remove: '  while ring(lane.kind) do end\n' },
    /slept/,
  ],
  [
    'a worker whose own copies are beyond the edge looks at what others hold',
    BALANCED,
    { remove: '    if has_walked or width == 0 then break end\n', replacement: '    do break end\n' },
    /takes|slept/,
  ],
  [
    'a slot that ends is used once',
    FANOUT,
    { remove: '      spare[lane.number] = spare[lane.number] - 1\n' },
    /takes|uses/,
  ],
  [
    'a job whose claim is unclear goes home',
    FANOUT,
    { remove: "      place(id, number, score, token, 'hint')\n" },
    /lane \d+|takes/,
  ],
  [
    'a lane with a bound is listed',
    FANOUT,
    { remove: "    redis.call('SADD', prefix .. 'bounded', lane.number)\n" },
    /bounded|takes/,
  ],
  [
    'a limit whose last slot is taken is listed as full',
    FANOUT,
    { remove: "redis.call(free > 0 and 'SREM' or 'SADD', full_key, limit)" },
    /full: .*have no free slot, listed are/,
  ],
  [
    'a limit that is read in without a free slot is listed as full',
    FANOUT,
    { remove: "        redis.call('SADD', full_key, limit[2])\n" },
    /full: .*have no free slot, listed are/,
  ],
  [
    'a mode that changes leaves no queue complete',
    FANOUT,
    { remove: "  set_worker_bound(me, '-1', '')\nend\n", replacement: 'end\n' },
    /complete|takes|bound of/,
  ],
  [
    'what was read from another bound is not taken in',
    FANOUT,
    {
      remove: 'if lane.bound_score ~= arg.fromScore or lane.bound_id ~= arg.fromId then\n',
      replacement: 'if false then\n',
    },
    /refilled|bound of lane|takes/,
  ],
  [
    'a lane that runs low asks to be read on',
    FANOUT,
    { remove: 'size_of(lane) < window / 2 then want_more(number) end\n', replacement: 'false then end\n' },
    /read on/,
  ],
  [
    'a job that is gone is not taken any more',
    FANOUT,
    { remove: '  if taken_of(ARGV[at]) then forget_taken(ARGV[at]) end\n' },
    /taken/,
  ],
]

describe('without the rule that', () => {
  it.each(guards)('%s, histories go wrong', async (_, spread, weakness, expected) => {
    const runner = weakenedRunner(redis.store, weakness)
    let problems: string[] = []
    for (let seed = 1; seed <= HISTORIES && problems.length === 0; seed++)
      problems = await runHistory(redis, `${redis.deployment}-${seed}`, {
        seed,
        steps: STEPS,
        spread,
        runner,
      })
    expect(problems.join('\n')).toMatch(expected)
  })
})

-- What all scripts share. A head is a line for the scripts and then what only clients read: the frame in MessagePack, and
-- the value's bytes if they are few. The line: version, expiry in ms or 0, bytes that count, the chunks' reference or "-",
-- how many chunks, whether it is a counter, the frame's length.
local heads, names, usage, claims, expiries, garbage, incarnation, jobs, counters, held =
    KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local known, candidate, job = ARGV[1], ARGV[2], ARGV[3]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- The arguments of a script, one after another.
local at = 4
local function take()
    at = at + 1
    return ARGV[at - 1]
end

-- How long chunks that no head names are left for those who are reading them.
local GRACE = 60000

-- The next version or epoch. It goes by the clock on the wall, in microseconds, so that none comes twice, even if the server
-- has lost the last ones it gave out.
local function tick()
    local last = tonumber(redis.call('HGET', usage, 'clock') or '0')
    local version = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
    redis.call('HSET', usage, 'clock', version)
    return version
end

local function count(what, bytes)
    redis.call('HINCRBY', usage, what, string.format('%.0f', bytes))
end

local function counted(what)
    return tonumber(redis.call('HGET', usage, what) or '0')
end

-- Chunks that no head names are held by somebody and counted apart: 'reserved' while they are sent, 'replaced' while they
-- may still be read.
local function hold(ref, what, bytes)
    redis.call('HSET', held, ref, what .. ' ' .. string.format('%.0f', bytes))
    count(what, bytes)
end

local function let_go(ref)
    local what, bytes = string.match(redis.call('HGET', held, ref) or '', '^(%a+) (%d+)$')
    if not what then return end
    redis.call('HDEL', held, ref)
    count(what, -tonumber(bytes))
end

-- What a claim is: its epoch, and the bytes that count for it.
local function claimed(claim)
    local epoch, bytes = string.match(redis.call('HGET', claims, claim) or '0', '^(%d+) ?(%d*)$')
    return epoch, tonumber(bytes) or 0
end

local function parse(head)
    local at = string.find(head, '\n', 1, true)
    local version, expires, counted, ref, chunks, counter, frame =
        string.match(string.sub(head, 1, at - 1), '^(%d+) (%d+) (%d+) (%S+) (%d+) (%d) (%d+)$')
    return {
        version = version, expires = tonumber(expires), counted = tonumber(counted), ref = ref, chunks = chunks,
        counter = counter == '1', frame = tonumber(frame), rest = at + 1,
    }
end

local function line(head)
    return string.format('%s %.0f %.0f %s %s %s %.0f\n', head.version, head.expires, head.counted, head.ref, head.chunks,
        head.counter and '1' or '0', head.frame)
end

-- The stored head and its parts, if it has not expired.
local function live(key)
    local head = redis.call('HGET', heads, key)
    if not head then return nil end
    local parts = parse(head)
    if parts.expires ~= 0 and parts.expires <= now then return nil end
    return head, parts
end

-- As clients get it: the counter's number, and the head with or without the bytes in it.
local function told(key, head, parts, whole)
    local count = parts.counter and redis.call('HGET', counters, key) or ''
    if not whole then head = string.sub(head, 1, parts.rest + parts.frame - 1) end
    return { count, head }
end

-- Takes a head away, whether it has expired or not.
local function drop(key)
    local head = redis.call('HGET', heads, key)
    if not head then return end
    local parts = parse(head)
    redis.call('HDEL', heads, key)
    redis.call('ZREM', names, key)
    redis.call('ZREM', expiries, job .. ' ' .. key)
    if parts.counter then redis.call('HDEL', counters, key) end
    if parts.ref ~= '-' then
        redis.call('ZADD', garbage, now + GRACE, parts.ref .. ' ' .. parts.chunks)
        hold(parts.ref, 'replaced', parts.counted)
    end
    count('bytes', -parts.counted)
    if redis.call('ZCARD', names) == 0 and redis.call('HLEN', claims) == 0 then redis.call('SREM', jobs, job) end
end

-- A server that was emptied has another incarnation, or none. Without a candidate, a store that has none is not begun.
local found = redis.call('GET', incarnation)
if known ~= '' and found ~= known then return { 'lost' } end
if not found then
    if candidate ~= '' then redis.call('SET', incarnation, candidate) end
    found = candidate
end

-- Its tenant is gone: nothing is read or written any more.
local ended = redis.call('HEXISTS', usage, 'ended') == 1

-- What a script answered is kept for whoever asks again because the answer did not come: under the request's number, in one
-- hash for each span of so many ms, which expires as a whole. KEYS[11] is what these hashes are named after; their field
-- 'bytes' counts what is in them. The first arguments of such a script: the request, the span, the most bytes that may be
-- kept, how many answers have come, and the requests of these. Gives the answer if the request was done before.
local ANSWER_BYTES = 128
local request, answers_span, most_answers, answers, arrived = nil, nil, nil, {}, {}
local function answered_before()
    request, answers_span, most_answers = take(), tonumber(take()), tonumber(take())
    for back = 0, 1 do
        answers[back + 1] = string.format('%s:%.0f', KEYS[11], math.floor(now / answers_span) - back)
    end
    for index = 1, tonumber(take()) do arrived[index] = take() end
    for _, place in ipairs(answers) do
        local before = redis.call('HGET', place, request)
        if before then return cmsgpack.unpack(before) end
    end
end

local function each_arrived(tell)
    for _, place in ipairs(answers) do
        for _, number in ipairs(arrived) do
            local bytes = redis.call('HSTRLEN', place, number)
            if bytes > 0 then tell(place, number, bytes + ANSWER_BYTES) end
        end
    end
end

local function forget_arrived()
    each_arrived(function(place, number, bytes)
        redis.call('HDEL', place, number)
        redis.call('HINCRBY', place, 'bytes', -bytes)
    end)
end

-- Whether one more answer of so many parts may be kept once those are forgotten that have arrived. Nothing is changed before
-- the script's own first change, unless there is no room: a server that is full looks at the first one only.
local function may_keep_answer(parts)
    local bytes = ANSWER_BYTES + 512 + 64 * parts
    for _, place in ipairs(answers) do bytes = bytes + tonumber(redis.call('HGET', place, 'bytes') or '0') end
    each_arrived(function(_, _, gone) bytes = bytes - gone end)
    if bytes <= most_answers then return true end
    forget_arrived()
    return false
end

local function keep_answer(result)
    forget_arrived()
    local packed = cmsgpack.pack(result)
    redis.call('HSET', answers[1], request, packed)
    redis.call('HINCRBY', answers[1], 'bytes', #packed + ANSWER_BYTES)
    redis.call('PEXPIRE', answers[1], 2 * answers_span)
    return result
end

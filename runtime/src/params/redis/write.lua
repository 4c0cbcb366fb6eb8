-- ARGV: what is said of the answer, the limit of bytes, the claim or "", its epoch, checks, changes. No value is part of an
-- answer.
local before = answered_before()
if before then return before end
if ended then return { 'ended' } end

local limit = tonumber(take())
local claim, epoch = take(), take()
if claim ~= '' then
    local newest = claimed(claim)
    if newest ~= epoch then return { 'fenced', newest } end
end

for _ = 1, tonumber(take()) do
    local key, expected = take(), take()
    local head, parts = live(key)
    local version = head and parts.version or '-'
    if version ~= expected then return { 'conflict', key, version } end
end

-- Everything that can be wrong is found before anything is changed.
local changes, more, reserved = {}, 0, counted('reserved')
for _ = 1, tonumber(take()) do
    local change = { op = take(), key = take() }
    local head, parts = live(change.key)
    change.head, change.parts = head, parts
    local stored = redis.call('HGET', heads, change.key)
    local before = stored and parse(stored).counted or 0
    if change.op == 'S' then
        change.counted, change.ref, change.chunks = tonumber(take()), take(), take()
        change.counter, change.expires, change.frame, change.body = take(), tonumber(take()), tonumber(take()), take()
        if change.ref ~= '-' and not redis.call('ZSCORE', garbage, change.ref .. ' ' .. change.chunks) then
            return { 'late' }
        end
        if change.ref ~= '-' then
            reserved = reserved - tonumber(string.match(redis.call('HGET', held, change.ref) or '', '^reserved (%d+)$') or '0')
        end
        more = more + change.counted - before
    elseif change.op == 'A' then
        change.by, change.counted, change.frame, change.body = take(), tonumber(take()), tonumber(take()), take()
        if head and not parts.counter then return { 'form', change.key, string.sub(head, parts.rest, parts.rest + parts.frame - 1) } end
        more = more + change.counted - before
    elseif change.op == 'D' then
        more = more - before
    else
        change.expires = tonumber(take())
    end
    changes[#changes + 1] = change
end
if more > 0 and counted('bytes') + reserved + more > limit then return { 'limit' } end
if not may_keep_answer(#changes) then return { 'answers' } end

local function put(change, version, expires, counter)
    local head = {
        version = version, expires = expires, counted = change.counted, ref = change.ref or '-',
        chunks = change.chunks or '0', counter = counter, frame = change.frame,
    }
    local text = line(head) .. change.body
    redis.call('HSET', heads, change.key, text)
    redis.call('ZADD', names, 0, change.key)
    count('bytes', change.counted)
    if expires ~= 0 then redis.call('ZADD', expiries, expires, job .. ' ' .. change.key) end
    return text
end

local result = { 'ok', found }
for _, change in ipairs(changes) do
    local key, answer = change.key, false
    -- A server that is full takes a deletion only if it is what comes first.
    if change.op == 'D' then drop(key) end
    local version = tick()
    if change.op == 'S' then
        drop(key)
        if change.ref ~= '-' then
            redis.call('ZREM', garbage, change.ref .. ' ' .. change.chunks)
            let_go(change.ref)
        end
        if change.counter ~= '-' then redis.call('HSET', counters, key, change.counter) end
        put(change, version, change.expires == 0 and 0 or now + change.expires, change.counter ~= '-')
    elseif change.op == 'A' then
        if not change.head then drop(key) end
        local sum = redis.pcall('HINCRBY', counters, key, change.by)
        -- Alone in its write, so nothing has been changed yet.
        if type(sum) == 'table' and sum.err then return { 'overflow', key } end
        local expires = change.head and change.parts.expires or 0
        if change.head then count('bytes', -change.parts.counted) end
        local head = put(change, version, expires, true)
        answer = told(key, head, parse(head), true)
    elseif change.op == 'X' and change.head then
        version = change.parts.version
        change.parts.expires = change.expires == 0 and 0 or now + change.expires
        local body = string.sub(change.head, change.parts.rest)
        redis.call('HSET', heads, key, line(change.parts) .. body)
        redis.call('ZREM', expiries, job .. ' ' .. key)
        if change.parts.expires ~= 0 then redis.call('ZADD', expiries, change.parts.expires, job .. ' ' .. key) end
    end
    result[#result + 1] = { version, change.head and 1 or 0, answer }
end
if redis.call('ZCARD', names) > 0 then redis.call('SADD', jobs, job) end
redis.call('PUBLISH', 'weft:changed', heads)
return keep_answer(result)

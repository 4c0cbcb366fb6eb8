-- ARGV: what is said of the answer, the limit of bytes, the epoch, how long they may take in ms, how many, then of each the
-- chunks and the bytes that count. Gives whether too much that was replaced is still kept, and references for chunks, which
-- are garbage until a head names them.
local before = answered_before()
if before then return before end
if ended then return { 'ended' } end
local limit, epoch, sending = tonumber(take()), take(), tonumber(take())
local values, more = {}, 0
for index = 1, tonumber(take()) do
    values[index] = { chunks = take(), bytes = tonumber(take()) }
    more = more + values[index].bytes
end
if counted('bytes') + counted('reserved') + more > limit then return { 'limit' } end
if not may_keep_answer(#values) then return { 'answers' } end
local crowded = '0'
if counted('replaced') + more > limit then
    -- Whoever is still reading them looks for the new ones.
    crowded = '1'
    for _, member in ipairs(redis.call('ZRANGEBYSCORE', garbage, '-inf', now + GRACE, 'LIMIT', 0, 1000)) do
        local what = redis.call('HGET', held, string.match(member, '^(%S+)')) or ''
        if string.sub(what, 1, 8) == 'replaced' then redis.call('ZADD', garbage, now, member) end
    end
end
local result = { 'ok', found, crowded }
for _, value in ipairs(values) do
    local ref = epoch .. '.' .. tick()
    redis.call('ZADD', garbage, now + sending, ref .. ' ' .. value.chunks)
    hold(ref, 'reserved', value.bytes)
    result[#result + 1] = ref
end
return keep_answer(result)

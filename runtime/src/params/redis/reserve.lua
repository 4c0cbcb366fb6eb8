-- ARGV: the limit of bytes, how many, the epoch, how long they may take in ms, how long the answer is kept in ms, then of
-- each the chunks and the bytes that count. Gives whether too much that was replaced is still kept, and references for
-- chunks, which are garbage until a head names them. KEYS[11] keeps the answer for whoever asks again because it did not
-- come.
local before = redis.call('GET', KEYS[11])
if before then return cmsgpack.unpack(before) end
if ended then return { 'ended' } end
local limit, values = tonumber(ARGV[4]), tonumber(ARGV[5])
local more = 0
for index = 1, values do more = more + tonumber(ARGV[8 + 2 * index]) end
if counted('bytes') + counted('reserved') + more > limit then return { 'limit' } end
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
for index = 1, values do
    local ref = ARGV[6] .. '.' .. tick()
    redis.call('ZADD', garbage, now + tonumber(ARGV[7]), ref .. ' ' .. ARGV[7 + 2 * index])
    hold(ref, 'reserved', tonumber(ARGV[8 + 2 * index]))
    result[#result + 1] = ref
end
redis.call('SET', KEYS[11], cmsgpack.pack(result), 'PX', ARGV[8])
return result

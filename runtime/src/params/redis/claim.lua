-- ARGV: the claim, the bytes that count for it, how many claims there may be, the limit of bytes. Gives its new epoch;
-- asked twice for want of an answer it skips one.
if ended then return { 'ended' } end
local claim, bytes, most, limit = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6]), tonumber(ARGV[7])
if redis.call('HEXISTS', claims, claim) == 0 and redis.call('HLEN', claims) >= most then return { 'claims' } end
local _, before = claimed(claim)
if bytes > before and counted('bytes') + counted('reserved') + bytes - before > limit then return { 'limit' } end
local epoch = tick()
redis.call('HSET', claims, claim, epoch .. ' ' .. string.format('%.0f', bytes))
count('bytes', bytes - before)
redis.call('SADD', jobs, job)
return { 'ok', found, epoch }

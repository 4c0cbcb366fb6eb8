-- ARGV: how many at most, the tenant's prefix. Takes away what expired, whatever its job is, and moves due garbage to
-- KEYS[11], from where no head can take it back. Of a tenant that is gone all garbage is due. Gives how many values expired, and the chunks that are to be deleted.
local most, prefix = ARGV[4], ARGV[5]
local gone = 0
for _, member in ipairs(redis.call('ZRANGEBYSCORE', expiries, '-inf', now, 'LIMIT', 0, most)) do
    local of_job, key = string.match(member, '^(%S+) (.+)$')
    job, heads, names, counters = of_job, prefix .. ':h:' .. of_job, prefix .. ':z:' .. of_job, prefix .. ':n:' .. of_job
    claims = prefix .. ':e:' .. of_job
    local head = redis.call('HGET', heads, key)
    if head then
        local parts = parse(head)
        if parts.expires ~= 0 and parts.expires <= now then
            drop(key)
            gone = gone + 1
        end
    end
    redis.call('ZREM', expiries, member)
end
for _, ref in ipairs(redis.call('ZRANGEBYSCORE', garbage, '-inf', ended and '+inf' or now, 'LIMIT', 0, most)) do
    redis.call('ZREM', garbage, ref)
    redis.call('ZADD', KEYS[11], now, ref)
end
return { 'ok', found, tostring(gone), redis.call('ZRANGE', KEYS[11], 0, tonumber(most) - 1) }

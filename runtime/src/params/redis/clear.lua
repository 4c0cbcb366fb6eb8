-- Takes all of a space away.
local all = redis.call('HKEYS', heads)
for _, key in ipairs(all) do drop(key) end
redis.call('DEL', claims)
redis.call('SREM', jobs, job)
redis.call('PUBLISH', 'weft:changed', heads)
return { 'ok', found, tostring(#all) }

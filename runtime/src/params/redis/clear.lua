-- ARGV: the name to begin after or "", how many at most. Takes so many names of a space away, and its claims after the last.
-- Gives how many names there were, and where to go on or "".
local first, most = ARGV[4] == '' and '-' or '(' .. ARGV[4], tonumber(ARGV[5])
local page = redis.call('ZRANGEBYLEX', names, first, '+', 'LIMIT', 0, most)
for _, key in ipairs(page) do drop(key) end
local rest = #page == most and page[#page] or ''
if rest == '' then
    for _, claim in ipairs(redis.call('HKEYS', claims)) do
        local _, bytes = claimed(claim)
        redis.call('HDEL', claims, claim)
        count('bytes', -bytes)
    end
    if redis.call('ZCARD', names) == 0 then redis.call('SREM', jobs, job) end
    redis.call('PUBLISH', 'weft:changed', heads)
end
return { 'ok', found, tostring(#page), rest }

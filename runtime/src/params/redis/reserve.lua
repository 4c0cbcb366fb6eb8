-- ARGV: how many, the epoch, how long they may take in ms, then chunks of each. Gives references for chunks, which are
-- garbage until a head names them.
local result = { 'ok', found }
for index = 1, tonumber(ARGV[4]) do
    local ref = ARGV[5] .. '.' .. string.format('%.0f', redis.call('HINCRBY', usage, 'clock', 1))
    redis.call('ZADD', garbage, now + tonumber(ARGV[6]), ref .. ' ' .. ARGV[6 + index])
    result[#result + 1] = ref
end
return result

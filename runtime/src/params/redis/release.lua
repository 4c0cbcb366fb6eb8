-- ARGV: references with their chunks that no head will name. They are moved to KEYS[11], from where no head can take them
-- back.
for index = 4, #ARGV do
    if redis.call('ZREM', garbage, ARGV[index]) == 1 then redis.call('ZADD', KEYS[11], now, ARGV[index]) end
end
return { 'ok', found }

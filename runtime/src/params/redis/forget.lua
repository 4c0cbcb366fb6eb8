-- ARGV: references with their chunks, which are deleted.
for index = 4, #ARGV do
    redis.call('ZREM', KEYS[11], ARGV[index])
    let_go(string.match(ARGV[index], '^(%S+)'))
end
return { 'ok', found }

-- ARGV: how much longer in ms, references with their chunks. They are still being sent.
if ended then return { 'ended' } end
for index = 5, #ARGV do
    if not redis.call('ZSCORE', garbage, ARGV[index]) then return { 'late' } end
    redis.call('ZADD', garbage, now + tonumber(ARGV[4]), ARGV[index])
end
return { 'ok', found }

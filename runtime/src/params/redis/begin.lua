-- ARGV: another incarnation. A tenant that lives goes on with a store that was ended. It gets another incarnation, so that
-- whoever is still about to end the old one finds that gone.
if ended then
    -- Until it is known how long the end is remembered, somebody is still deleting.
    if redis.call('PTTL', usage) == -1 then return { 'ending' } end
    redis.call('HDEL', usage, 'ended')
    redis.call('PERSIST', usage)
    redis.call('SET', incarnation, ARGV[4])
    found = ARGV[4]
end
return { 'ok', found }

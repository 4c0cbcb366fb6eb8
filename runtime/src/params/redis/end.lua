-- ARGV: "0", or for how many ms it is to be remembered that the tenant is gone. From now on nothing is read or written.
redis.call('PERSIST', usage)
redis.call('HSET', usage, 'ended', '1')
if ARGV[4] ~= '0' then
    redis.call('PEXPIRE', usage, ARGV[4])
    redis.call('PEXPIRE', incarnation, ARGV[4])
end
redis.call('PUBLISH', 'weft:changed', heads)
return { 'ok', found }

-- ARGV: the claim. Gives its new epoch; asked twice for want of an answer it skips one.
redis.call('SADD', jobs, job)
return { 'ok', found, string.format('%.0f', redis.call('HINCRBY', claims, ARGV[4], 1)) }

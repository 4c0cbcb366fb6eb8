-- ARGV: where to go on or "0", the tenant's prefix. Gives where to go on, and jobs that have values or claims, each with
-- whether it has values.
local page = redis.call('SSCAN', jobs, ARGV[4], 'COUNT', 500)
local result = { 'ok', found, page[1] }
for _, of_job in ipairs(page[2]) do
    result[#result + 1] = { of_job, redis.call('EXISTS', ARGV[5] .. ':z:' .. of_job) }
end
return result

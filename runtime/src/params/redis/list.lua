-- ARGV: the first and the last name of the range, how many at most. Looks at so many names, and gives where to go on or
-- nothing, then names and heads, in order.
if ended then return { 'ended' } end
local most = tonumber(ARGV[6])
local page = redis.call('ZRANGEBYLEX', names, ARGV[4], ARGV[5], 'LIMIT', 0, most)
local result = { 'ok', found, #page == most and page[#page] or '' }
for _, key in ipairs(page) do
    local head, parts = live(key)
    if head then
        local number, short = unpack(told(key, head, parts, false))
        result[#result + 1] = { key, number, short }
    end
end
return result

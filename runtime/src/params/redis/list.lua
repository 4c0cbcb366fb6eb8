-- ARGV: the first and the last name of the range, how many. Gives names and heads, in order.
local first, last, most = ARGV[4], ARGV[5], tonumber(ARGV[6])
local result = { 'ok', found }
while #result < 2 + most do
    local page = redis.call('ZRANGEBYLEX', names, first, last, 'LIMIT', 0, most)
    if #page == 0 then break end
    for _, key in ipairs(page) do
        local head, parts = live(key)
        if head and #result < 2 + most then
            local count, short = unpack(told(key, head, parts, false))
            result[#result + 1] = { key, count, short }
        end
    end
    first = '(' .. page[#page]
end
return result

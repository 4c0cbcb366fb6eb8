-- ARGV: how many bytes of values may come along, names. Gives the heads of these names, as of one moment. Those whose bytes
-- do not come along are to be asked for again.
if ended then return { 'ended' } end
local left = tonumber(ARGV[4])
local result = { 'ok', found }
for index = 5, #ARGV do
    local head, parts = live(ARGV[index])
    if head then
        local bytes = #head - (parts.rest + parts.frame - 1)
        local whole = bytes <= left
        if whole then left = left - bytes end
        result[#result + 1] = told(ARGV[index], head, parts, whole)
    else
        result[#result + 1] = false
    end
end
return result

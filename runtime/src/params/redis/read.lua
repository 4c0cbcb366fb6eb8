-- ARGV: whole or not, names. Gives the heads of these names, as of one moment.
local whole = ARGV[4] == '1'
local result = { 'ok', found }
for index = 5, #ARGV do
    local head, parts = live(ARGV[index])
    result[#result + 1] = head and told(ARGV[index], head, parts, whole) or false
end
return result

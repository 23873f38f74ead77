# Writes the first ```cpp block of README to OUTPUT, so that what is compiled is what is read:
#   cmake -DREADME=README.md -DOUTPUT=example.cpp -P extract.cmake
file(READ "${README}" text)
set(fence "\n```cpp\n")
string(FIND "${text}" "${fence}" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "${README} has no ```cpp block")
endif()

string(SUBSTRING "${text}" 0 ${begin} above)
string(LENGTH "${fence}" length)
math(EXPR begin "${begin} + ${length}")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "\n```\n" end)
string(SUBSTRING "${text}" 0 ${end} block)

# So that the compiler's messages name the line in README.
string(REGEX REPLACE "[^\n]" "" newlines "${above}")
string(LENGTH "${newlines}" line)
math(EXPR line "${line} + 3")
file(WRITE "${OUTPUT}" "#line ${line} \"${README}\"\n${block}\n")

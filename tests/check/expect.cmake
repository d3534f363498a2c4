# cmake -DSEAM=build/seam -DPLUGIN=x.so -DREFERENCE=y.so -DRULE=M3
#   -DLIMIT=seconds -P expect.cmake
#
# seam check finds the plugin to break RULE and nothing else.
execute_process(
  COMMAND ${SEAM} check --json --limit ${LIMIT} --reference ${REFERENCE} ${PLUGIN}
  OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE rc)
string(REGEX MATCHALL "\"rule\":\"[A-Z0-9?]+\"" rules "${text}")
list(TRANSFORM rules REPLACE "\"rule\":\"(.*)\"" "\\1")
list(REMOVE_DUPLICATES rules)
if(NOT rc EQUAL 1 OR NOT rules STREQUAL RULE)
  message(FATAL_ERROR
    "found \"${rules}\" and status ${rc}, expected \"${RULE}\" and 1\n"
    "${text}${error}")
endif()

# cmake -DGUIDE=docs/abi.md -DEXAMPLE=ema.c -P quote.cmake
#
# The example printed in the guide is the one that is built and tested.
file(READ ${GUIDE} guide)
file(READ ${EXAMPLE} example)
string(FIND "${guide}" "```c\n${example}```\n" at)
if(at LESS 0)
  message(FATAL_ERROR "${GUIDE} does not quote ${EXAMPLE} word for word")
endif()

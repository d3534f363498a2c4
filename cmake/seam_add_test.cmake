# seam_add_test(NAME SOURCES a.c ... [TIMEOUT seconds] [PLUGINS kda ...]
#   [THREADS])
#
# A Criterion program run by ctest.  PLUGINS are built before it runs; their
# folder is in the macro SEAM_TEST_PLUGIN_DIR, the source tree in
# SEAM_TEST_SOURCE_DIR, the build tree in SEAM_TEST_BINARY_DIR.
#
# THREADS says that the test is about code with threads: ThreadSanitizer runs
# those (label threads, target threaded_tests).
add_custom_target(threaded_tests)
pkg_check_modules(CRITERION REQUIRED IMPORTED_TARGET criterion)

function(seam_add_test name)
  cmake_parse_arguments(T "THREADS" "TIMEOUT" "SOURCES;PLUGINS" ${ARGN})
  if(NOT T_TIMEOUT)
    set(T_TIMEOUT 120)
  endif()
  # Sanitizers slow a test down several times, a loaded machine once more.
  if(SEAM_SANITIZE)
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 10")
  else()
    math(EXPR T_TIMEOUT "${T_TIMEOUT} * 5")
  endif()
  if(SEAM_SANITIZE MATCHES "thread")
    list(APPEND T_SOURCES ${PROJECT_SOURCE_DIR}/tests/support/tsan_runner.c)
  endif()
  add_executable(test_${name} ${T_SOURCES})
  set_target_properties(test_${name} PROPERTIES SEAM_KEEP_SECTIONS ON)
  target_link_libraries(test_${name} PRIVATE
    seam_core PkgConfig::CRITERION Threads::Threads m)
  # Criterion's macros declare what they define and shadow on purpose.
  target_compile_options(test_${name} PRIVATE
    -Wno-missing-prototypes -Wno-shadow -Wno-pedantic)
  target_compile_definitions(test_${name} PRIVATE
    SEAM_TEST_PLUGIN_DIR="${CMAKE_BINARY_DIR}/plugins"
    SEAM_TEST_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    SEAM_TEST_BINARY_DIR="${CMAKE_BINARY_DIR}")
  if(T_PLUGINS)
    add_dependencies(test_${name} ${T_PLUGINS})
  endif()
  add_test(NAME ${name} COMMAND test_${name} --jobs 2)
  # A program that finds no test to run has passed none.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${T_TIMEOUT}
    FAIL_REGULAR_EXPRESSION "Tested: 0 ")
  if(SEAM_SANITIZE MATCHES "thread")
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tests/support/tsan.supp")
  endif()
  if(T_THREADS)
    set_tests_properties(${name} PROPERTIES LABELS threads)
    add_dependencies(threaded_tests test_${name})
  endif()
endfunction()

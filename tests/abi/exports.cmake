# cmake -DNM=nm -DSERVER=build/seam -DPLUGIN_DIR=build/plugins -P exports.cmake
#
# The server exports no symbol of its own, each plugin its entry and no other.
function(exported out file)
  execute_process(COMMAND ${NM} -D --defined-only --no-demangle ${file}
    OUTPUT_VARIABLE text ERROR_VARIABLE error RESULT_VARIABLE rc)
  if(rc)
    message(FATAL_ERROR "${file}: ${NM}: ${error}")
  endif()
  string(REGEX MATCHALL "[^ \n]+\n" names "${text}\n")
  list(TRANSFORM names STRIP)
  list(REMOVE_ITEM names "")
  set(${out} "${names}" PARENT_SCOPE)
endfunction()

if(SERVER)
  exported(names ${SERVER})
  # The C library's own variables are copied into programs that use them, and
  # sanitizers export their functions.
  foreach(name IN LISTS names)
    if(name MATCHES "^seam_")
      message(SEND_ERROR "${SERVER} exports ${name}; expected no symbol seam_*")
    endif()
  endforeach()
endif()

file(GLOB plugins ${PLUGIN_DIR}/*.so)
list(LENGTH plugins n)
if(n EQUAL 0)
  message(FATAL_ERROR "no plugins in ${PLUGIN_DIR}")
endif()
foreach(plugin IN LISTS plugins)
  exported(names ${plugin})
  if(NOT names STREQUAL "seam_plugin_entry")
    message(SEND_ERROR
      "${plugin} exports \"${names}\"; expected seam_plugin_entry alone")
  endif()
endforeach()
message("${n} plugins looked at")

# What is installed runs from where it was installed.
#   cmake -DBINARY_DIR=... -P install.cmake
set(prefix ${BINARY_DIR}/tests/cli/installed)
file(REMOVE_RECURSE ${prefix})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BINARY_DIR}
  --prefix ${prefix} OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
file(GLOB_RECURSE config ${prefix}/*/seam.json)
file(GLOB_RECURSE index ${prefix}/*/model.safetensors.index.json)
get_filename_component(model ${index} DIRECTORY)
execute_process(COMMAND ${prefix}/bin/seam run -c ${config} --model ${model}
  -p hello --max-tokens 2 RESULT_VARIABLE status ERROR_VARIABLE said)
file(REMOVE_RECURSE ${prefix})
if(NOT status EQUAL 0 OR NOT said MATCHES "2 generated")
  message(FATAL_ERROR "the installed program: status ${status}: ${said}")
endif()

# seam_add_plugin(NAME SOURCES a.c b.c ... [OPTIONS -mavx2 ...])
#
# One shared object build/plugins/NAME.so that exports seam_plugin_entry and
# nothing else.  docs/abi.md says why each option is there.
set(SEAM_PLUGIN_MAP ${CMAKE_CURRENT_LIST_DIR}/plugin.map)

function(seam_add_plugin name)
  cmake_parse_arguments(P "" "" "SOURCES;OPTIONS" ${ARGN})
  add_library(${name} MODULE ${P_SOURCES})
  set_target_properties(${name} PROPERTIES PREFIX ""
    LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/plugins)
  target_include_directories(${name} PRIVATE
    ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/plugins/common)
  target_compile_options(${name} PRIVATE -fvisibility=hidden ${P_OPTIONS})
  target_link_libraries(${name} PRIVATE seam_flags m)
  target_link_options(${name} PRIVATE
    -Wl,--version-script=${SEAM_PLUGIN_MAP}
    -Wl,-z,now,-z,relro,-z,noexecstack -Wl,--exclude-libs,ALL)
  if(NOT SEAM_SANITIZE) # whose functions the program provides
    target_link_options(${name} PRIVATE -Wl,-z,defs)
  endif()
  set_target_properties(${name} PROPERTIES LINK_DEPENDS ${SEAM_PLUGIN_MAP})
  # Plugins of the tests stay where they are.
  if(CMAKE_CURRENT_SOURCE_DIR MATCHES "^${PROJECT_SOURCE_DIR}/plugins/")
    install(TARGETS ${name}
      LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/seam/plugins)
  endif()
endfunction()

# Where things go.  The program lies beside its plugins, where it looks for them,
# and is linked into the path.
include(GNUInstallDirs)
install(TARGETS seam RUNTIME DESTINATION ${CMAKE_INSTALL_LIBDIR}/seam)
file(RELATIVE_PATH SEAM_LINK ${CMAKE_INSTALL_FULL_BINDIR}
  ${CMAKE_INSTALL_FULL_LIBDIR}/seam/seam)
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/install)
file(CREATE_LINK ${SEAM_LINK} ${CMAKE_BINARY_DIR}/install/seam SYMBOLIC)
install(FILES ${CMAKE_BINARY_DIR}/install/seam
  DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES include/seam/plugin.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/seam)
install(DIRECTORY docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY models/nano/w4a16
  DESTINATION ${CMAKE_INSTALL_DATADIR}/seam/models/nano)
configure_file(dist/seam.json.in install/seam.json @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/install/seam.json
  DESTINATION ${CMAKE_INSTALL_SYSCONFDIR}/seam)
configure_file(dist/seam.service.in install/seam.service @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/install/seam.service
  DESTINATION ${CMAKE_INSTALL_PREFIX}/lib/systemd/system)

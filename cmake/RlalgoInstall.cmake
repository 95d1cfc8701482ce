# Install: headers, floor targets, rlalgoConfig.cmake. Component `Development`; the CLI is in `Runtime`.
if(RLALGO_HOST_ONLY)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_rlalgo_package ${CMAKE_INSTALL_LIBDIR}/cmake/rlalgo)

install(TARGETS rlalgo_host rlalgo_rlalgo rlalgo_config EXPORT rlalgoTargets
  FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT Development)
if(TARGET rlalgo_cuda)
  install(TARGETS rlalgo_cuda EXPORT rlalgoTargets)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rlalgo/cuda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rlalgo COMPONENT Development)
endif()
install(EXPORT rlalgoTargets NAMESPACE rlalgo:: DESTINATION ${_rlalgo_package} COMPONENT Development)
write_basic_package_version_file(rlalgoConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/rlalgoConfig.cmake.in rlalgoConfig.cmake
  INSTALL_DESTINATION ${_rlalgo_package})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rlalgoConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/rlalgoConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/RlalgoLibTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/RlalgoHttplib.cmake
  DESTINATION ${_rlalgo_package} COMPONENT Development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT Development)

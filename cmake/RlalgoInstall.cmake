# Install: headers, floor targets, rlalgoConfig.cmake. Component `Development`; the program is in `Runtime` (RlalgoProgram.cmake).
# Every component of find_package(rlalgo) has an export file of its own, so that one can be used where the dependencies
# of another are missing.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(_rlalgo_package ${CMAKE_INSTALL_LIBDIR}/cmake/rlalgo)

foreach(_component IN LISTS RLALGO_COMPONENTS)
  if(_component STREQUAL "cuda")
    install(TARGETS rlalgo_cuda EXPORT rlalgo_cuda)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rlalgo/cuda DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/rlalgo COMPONENT Development)
  elseif(_component MATCHES "^compiled")
    install(TARGETS rlalgo_${_component} EXPORT rlalgo_${_component} ARCHIVE COMPONENT Development)
  else()
    install(TARGETS rlalgo_${_component} EXPORT rlalgo_${_component}
      FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT Development)
  endif()
  install(EXPORT rlalgo_${_component} FILE rlalgo-${_component}-targets.cmake NAMESPACE rlalgo:: DESTINATION ${_rlalgo_package}
    COMPONENT Development)
endforeach()
write_basic_package_version_file(rlalgoConfigVersion.cmake COMPATIBILITY SameMinorVersion ARCH_INDEPENDENT)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/rlalgoConfig.cmake.in rlalgoConfig.cmake
  INSTALL_DESTINATION ${_rlalgo_package})
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rlalgoConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/rlalgoConfigVersion.cmake
  ${CMAKE_CURRENT_LIST_DIR}/RlalgoLibTorch.cmake
  DESTINATION ${_rlalgo_package} COMPONENT Development)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATAROOTDIR}/doc/rlalgo COMPONENT Development)

# Installs the program `rlalgo` (component `Runtime`) so that it runs wherever the installation is moved to:
#   bin/rlalgo                    RUNPATH relative to itself
#   lib/rlalgo/                   every library that it needs and that is not the C or C++ runtime of the system
#                                 librlalgo_arrow.so among them, which reads Parquet; Arrow itself comes with Python's pyarrow
#   share/rlalgo/build.json       version, commit, LibTorch, glibc
#   share/rlalgo/examples/…       the quickstart
#   share/doc/rlalgo/…            the pages of docs/, LICENSE and the licences of the libraries
# RLALGO_PROGRAM installs a program that was built elsewhere; then nothing is compiled. RLALGO_BUNDLE_TORCH=OFF leaves LibTorch
# out, for a Python package that lies beside torch (pyproject.toml). CPack makes a tarball and a .deb of this component.
include(GNUInstallDirs)
set(_rlalgo_bundle_torch ON)
if(SKBUILD)
  set(_rlalgo_bundle_torch OFF)
endif()
option(RLALGO_BUNDLE_TORCH "Install LibTorch's CPU libraries with the program" ${_rlalgo_bundle_torch})
set(RLALGO_PROGRAM "" CACHE FILEPATH "A program to install that is built already; empty = build it")

# Seen from <prefix>/bin; the second and third where <prefix> is site-packages/rlalgo.
set(RLALGO_RUNPATH "$ORIGIN/../lib/rlalgo")
set(RLALGO_RUNPATH_OF_WHEEL "$ORIGIN/../lib/rlalgo:$ORIGIN/../../torch/lib:$ORIGIN/../../nvidia/cu13/lib")
if(RLALGO_PROGRAM)
  set(_rlalgo_built ${RLALGO_PROGRAM})
  unset(RLALGO_PROGRAM CACHE)  # holds for this time only: the folder may be used to build in, next
  add_custom_target(rlalgo)    # what a build asks for
  install(PROGRAMS ${_rlalgo_built} DESTINATION bin RENAME rlalgo COMPONENT Runtime)
else()
  set(_rlalgo_built $<TARGET_FILE:rlalgo>)
  # The longer of the two, so that there is room for either (bundle.cmake sets the one that is meant).
  set_target_properties(rlalgo PROPERTIES INSTALL_RPATH "${RLALGO_RUNPATH_OF_WHEEL}")
  install(TARGETS rlalgo RUNTIME DESTINATION bin COMPONENT Runtime)
endif()
set(_rlalgo_runpath "${RLALGO_RUNPATH_OF_WHEEL}")
if(RLALGO_BUNDLE_TORCH)
  set(_rlalgo_runpath "${RLALGO_RUNPATH}")
endif()
install(CODE "set(RLALGO_BUILT \"${_rlalgo_built}\")
set(RLALGO_SOURCE \"${PROJECT_SOURCE_DIR}\")
set(RLALGO_VERSION \"${PROJECT_VERSION}\")
set(RLALGO_BUNDLE_TORCH ${RLALGO_BUNDLE_TORCH})
set(RLALGO_STRIP \"${CMAKE_STRIP}\")
set(RLALGO_RUNPATH [[${_rlalgo_runpath}]])" COMPONENT Runtime)
install(SCRIPT ${CMAKE_CURRENT_LIST_DIR}/bundle.cmake COMPONENT Runtime)
foreach(_folder IN ITEMS model data)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/examples/quickstart/${_folder} DESTINATION share/rlalgo/examples/quickstart COMPONENT Runtime)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/examples/quickstart/config.yaml DESTINATION share/rlalgo/examples/quickstart COMPONENT Runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION share/doc/rlalgo COMPONENT Runtime FILES_MATCHING PATTERN "*.md")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/CHANGELOG.md DESTINATION share/doc/rlalgo COMPONENT Runtime)

if(NOT PROJECT_IS_TOP_LEVEL OR SKBUILD)
  return()
endif()
set(CPACK_PACKAGE_NAME rlalgo)
set(CPACK_PACKAGE_VENDOR "The rlalgo authors")
set(CPACK_PACKAGE_CONTACT "The rlalgo authors <${PROJECT_HOMEPAGE_URL}/issues>")
set(CPACK_PACKAGE_HOMEPAGE_URL ${PROJECT_HOMEPAGE_URL})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_COMPONENTS_ALL Runtime)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_COMPONENT_INCLUDE_TOPLEVEL_DIRECTORY ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
string(TOLOWER "rlalgo-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" CPACK_PACKAGE_FILE_NAME)
set(CPACK_ARCHIVE_FILE_NAME ${CPACK_PACKAGE_FILE_NAME})
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libstdc++6 (>= 12), libgcc-s1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "python3")
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_CURRENT_LIST_DIR}/cpack_options.cmake)
include(CPack)

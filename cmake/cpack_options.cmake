# Read by cpack for each kind of package: an archive begins at its own folder, not at /usr.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_PACKAGING_INSTALL_PREFIX /)
endif()

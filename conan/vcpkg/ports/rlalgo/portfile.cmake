set(VCPKG_BUILD_TYPE release)  # header-only

vcpkg_from_github(
  OUT_SOURCE_PATH SOURCE_PATH
  REPO rlalgo/rlalgo
  REF "v${VERSION}"
  SHA512 0  # of the tag's archive
  HEAD_REF main
)

vcpkg_check_features(OUT_FEATURE_OPTIONS FEATURE_OPTIONS
  INVERTED_FEATURES
    torch RLALGO_HOST_ONLY
)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS
    ${FEATURE_OPTIONS}
    -DRLALGO_BUILD_TESTS=OFF
    -DRLALGO_BUILD_EXAMPLES=OFF
    -DRLALGO_FIND_DEPENDENCIES=OFF
    -DRLALGO_CUDA=OFF
)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(CONFIG_PATH lib/cmake/rlalgo)

file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/lib")
file(INSTALL "${CMAKE_CURRENT_LIST_DIR}/usage" DESTINATION "${CURRENT_PACKAGES_DIR}/share/${PORT}")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")

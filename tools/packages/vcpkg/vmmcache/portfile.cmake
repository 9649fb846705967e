# An overlay port: vcpkg install vmmcache --overlay-ports=tools/packages/vcpkg
get_filename_component(SOURCE_PATH "${CMAKE_CURRENT_LIST_DIR}/../../../.." ABSOLUTE)

vcpkg_cmake_configure(
  SOURCE_PATH "${SOURCE_PATH}"
  OPTIONS -DVMM_BUILD_TOOLS=OFF -DVMM_BUILD_TESTS=OFF -DVMM_BUILD_BENCH=OFF -DVMM_BUILD_TORCH=OFF
          -DVMM_BUILD_PRELOAD=OFF)
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME vmmcache CONFIG_PATH lib/cmake/vmmcache)
vcpkg_fixup_pkgconfig()
file(REMOVE_RECURSE "${CURRENT_PACKAGES_DIR}/debug/include")
vcpkg_install_copyright(FILE_LIST "${SOURCE_PATH}/LICENSE")

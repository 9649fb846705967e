# Installation: headers, both libraries, the CMake package and the pkg-config file. Relocatable: no
# installed file names the prefix. Components: runtime (the shared libraries), development (headers, static
# library, packages), tools (fragtest and its traces, vmmtop; the preload library). `uninstall` removes what the last installation wrote.
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vmmcache DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT development)
set(vmm_installed vmmcache vmmcache_static)
if(VMM_BUILD_TORCH)
  list(APPEND vmm_installed vmmcache_torch)
endif()
install(TARGETS ${vmm_installed} EXPORT vmmcacheTargets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

if(TARGET vmmcache_preload)
  install(TARGETS vmmcache_preload LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)
endif()

set(vmm_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/vmmcache)
install(EXPORT vmmcacheTargets NAMESPACE vmmcache:: DESTINATION ${vmm_package_dir}
        COMPONENT development)
configure_package_config_file(
  ${CMAKE_CURRENT_LIST_DIR}/vmmcacheConfig.cmake.in ${PROJECT_BINARY_DIR}/vmmcacheConfig.cmake
  INSTALL_DESTINATION ${vmm_package_dir})
# Until 1.0 a change of the minor version may break what calls it.
write_basic_package_version_file(
  ${PROJECT_BINARY_DIR}/vmmcacheConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/vmmcacheConfig.cmake
              ${PROJECT_BINARY_DIR}/vmmcacheConfigVersion.cmake
        DESTINATION ${vmm_package_dir} COMPONENT development)

file(RELATIVE_PATH vmm_prefix_from_pc
     /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
string(REGEX REPLACE "/$" "" vmm_prefix_from_pc "${vmm_prefix_from_pc}")
configure_file(${CMAKE_CURRENT_LIST_DIR}/vmmcache.pc.in ${PROJECT_BINARY_DIR}/vmmcache.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/vmmcache.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

if(vmm_is_top_level)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -P
                                      ${CMAKE_CURRENT_LIST_DIR}/VmmUninstall.cmake)
endif()

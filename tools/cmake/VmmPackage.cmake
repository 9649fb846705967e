# Installation: headers, both libraries, the CMake package and the pkg-config file. Relocatable: no
# installed file names the prefix. Components: runtime (the shared libraries), development (headers, static
# library, packages), tools (fragtest and its traces; vmmtop; the preload library; vmmcache-report; man pages), python (the
# contents of a wheel; only if it is named). `uninstall` removes what the last installation wrote.
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

# vmm_install_python(FOLDER ...): the Python package, with what it compiles against the user's PyTorch.
set(vmm_python_dir ${PROJECT_SOURCE_DIR}/tools/python)
function(vmm_install_python folder)
  install(DIRECTORY ${vmm_python_dir}/vmmcache DESTINATION ${folder} ${ARGN}
          FILES_MATCHING PATTERN *.py PATTERN *.html PATTERN __pycache__ EXCLUDE)
  if(TARGET vmmcache_torch)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/torch/shim/ DESTINATION ${folder}/vmmcache/shim/torch/shim ${ARGN}
            FILES_MATCHING PATTERN *.cpp PATTERN *.h)
    install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/vmmcache/ DESTINATION ${folder}/vmmcache/shim/vmmcache ${ARGN}
            FILES_MATCHING PATTERN *.h)
  endif()
endfunction()

# The report needs no more than Python's standard library. The rest of the package finds the library through a link
# beside its files.
if(VMM_BUILD_TOOLS)
  install(PROGRAMS ${vmm_python_dir}/vmmcache-report DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
  set(vmm_python_destination ${CMAKE_INSTALL_DATADIR}/vmmcache/python)
  vmm_install_python(${vmm_python_destination} COMPONENT tools)
  if(TARGET vmmcache_torch)
    file(RELATIVE_PATH vmm_library /prefix/${vmm_python_destination}/vmmcache
         /prefix/${CMAKE_INSTALL_LIBDIR}/libvmmcache_torch.so.${vmm_soversion})
    set(vmm_link ${PROJECT_BINARY_DIR}/installed/libvmmcache_torch.so)
    file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/installed)
    file(CREATE_LINK ${vmm_library} ${vmm_link} SYMBOLIC)
    install(FILES ${vmm_link} DESTINATION ${vmm_python_destination}/vmmcache COMPONENT tools)
  endif()
  include(VmmManStatistics)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/fragtest.1 ${PROJECT_SOURCE_DIR}/docs/man/vmmcache-report.1
                ${PROJECT_BINARY_DIR}/man/vmmtop.1
          DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
endif()
if(TARGET vmmcache_preload)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/libvmmcache_preload.7 DESTINATION ${CMAKE_INSTALL_MANDIR}/man7
          COMPONENT tools)
endif()

# The contents of a wheel: see tools/python/CMakeLists.txt.
if(TARGET vmmcache_torch)
  set(wheel COMPONENT python EXCLUDE_FROM_ALL)
  vmm_install_python(. ${wheel})
  install(FILES $<TARGET_FILE:vmmcache_torch> RENAME libvmmcache_torch.so DESTINATION vmmcache ${wheel})
  install(FILES ${vmm_python_dir}/vmmcache.pth ${vmm_python_dir}/vmmcache_auto.py DESTINATION . ${wheel})
  if(VMM_WHEEL_BUILDS)
    install(DIRECTORY ${VMM_WHEEL_BUILDS}/ DESTINATION vmmcache/prebuilt ${wheel} FILES_MATCHING PATTERN shim-*.so)
  endif()
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
  include(VmmCpack)
  add_custom_target(uninstall COMMAND ${CMAKE_COMMAND} -DBUILD=${PROJECT_BINARY_DIR} -P
                                      ${CMAKE_CURRENT_LIST_DIR}/VmmUninstall.cmake)
endif()

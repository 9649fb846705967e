# libvmmcache_torch has one file of C++; without a compiler for it the option VMM_BUILD_TORCH is turned
# off for this configuration.
if(VMM_BUILD_TORCH)
  include(CheckLanguage)
  check_language(CXX)
  if(CMAKE_CXX_COMPILER)
    enable_language(CXX)
  else()
    set(VMM_BUILD_TORCH OFF)
    message(STATUS "libvmmcache_torch: LEFT OUT, because no C++ compiler was found (g++)")
  endif()
endif()

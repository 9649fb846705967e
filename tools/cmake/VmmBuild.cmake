# How every target is compiled: build type, language level, warnings, hardening, sanitizers, checks.
# Provides vmm_target_defaults(TARGET), which each target of this project calls once, and
# vmm_require(), which ends the configuration with the name of the package that is missing.

get_property(vmm_is_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(vmm_is_top_level AND NOT vmm_is_multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Debug, Release, RelWithDebInfo or MinSizeRel" FORCE)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

if(VMM_CHECK STREQUAL "")
  set(vmm_check_level $<IF:$<CONFIG:Debug>,2,0>)
elseif(VMM_CHECK MATCHES "^[0-3]$")
  set(vmm_check_level ${VMM_CHECK})
else()
  message(FATAL_ERROR "VMM_CHECK is '${VMM_CHECK}'; it must be 0, 1, 2, 3 or empty")
endif()

set(vmm_compile_options -Wall -Wextra -Wconversion -Wshadow)
set(vmm_link_options "")
include(VmmHarden)
if(VMM_WERROR)
  list(APPEND vmm_compile_options -Werror)
endif()

if(VMM_SANITIZE STREQUAL "")
  list(APPEND vmm_compile_options ${vmm_fortify_options})
  list(APPEND vmm_link_options -Wl,--no-undefined)
elseif(VMM_SANITIZE MATCHES "^(address|undefined|address,undefined|thread)$")
  set(vmm_sanitize_options -fsanitize=${VMM_SANITIZE} -fno-sanitize-recover=all)
  list(APPEND vmm_compile_options ${vmm_sanitize_options} -fno-omit-frame-pointer -g1)
  list(APPEND vmm_link_options ${vmm_sanitize_options})
else()
  message(FATAL_ERROR "VMM_SANITIZE is '${VMM_SANITIZE}'; it must be empty, \"address\", "
                      "\"undefined\", \"address,undefined\" or \"thread\"")
endif()

function(vmm_target_defaults target)
  set_target_properties(${target} PROPERTIES
    C_STANDARD 11 C_STANDARD_REQUIRED ON C_EXTENSIONS OFF
    CXX_STANDARD 17 CXX_STANDARD_REQUIRED ON CXX_EXTENSIONS OFF
    C_VISIBILITY_PRESET hidden CXX_VISIBILITY_PRESET hidden)
  target_compile_options(${target} PRIVATE ${vmm_compile_options})
  target_compile_definitions(${target} PRIVATE VMM_CHECK=${vmm_check_level})
  get_target_property(type ${target} TYPE)
  if(NOT type MATCHES "^(STATIC|OBJECT)_LIBRARY$")
    target_link_options(${target} PRIVATE ${vmm_link_options})
  endif()
endfunction()

# vmm_require(FOUND WHAT PACKAGE USE): ends with a message that names the package to install.
macro(vmm_require found what package use)
  if(NOT ${found})
    message(FATAL_ERROR "${what} was not found, and ${use} needs it. Install it (Debian, Ubuntu: "
                        "apt-get install ${package}) or see the options in CMakeLists.txt.")
  endif()
endmacro()

# C++ is used by the benches, by checks of the header and the package, and by one file of libvmmcache_torch.
macro(vmm_enable_cxx use)
  include(CheckLanguage)
  check_language(CXX)
  vmm_require(CMAKE_CXX_COMPILER "A C++ compiler" g++ "${use}")
  enable_language(CXX)
endmacro()

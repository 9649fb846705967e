# Hardening, for every target of every build: what an error in the code is kept from doing. Options that a
# compiler does not know are left out; tests/security/hardening.py looks at what the libraries have.
# Appends to vmm_compile_options and vmm_link_options; vmm_fortify_options is for builds without sanitizers.
include(CheckCCompilerFlag)
include(CheckCSourceCompiles)
include(CMakePushCheckState)

set(vmm_harden_options -fstack-protector-strong -fstack-clash-protection)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND vmm_harden_options -fcf-protection=full)
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  list(APPEND vmm_harden_options -mbranch-protection=standard)
endif()
foreach(option ${vmm_harden_options})
  string(MAKE_C_IDENTIFIER "vmm_has${option}" found)
  check_c_compiler_flag(${option} ${found})
  if(${found})
    list(APPEND vmm_compile_options ${option})
  endif()
endforeach()
list(APPEND vmm_link_options -Wl,-z,relro,-z,now,-z,noexecstack)

# Copies whose length is known only as the program runs are checked at level 3, where there is one. A Debug
# build is not optimised, and the checks need that.
cmake_push_check_state()
set(CMAKE_REQUIRED_FLAGS "-O2 -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -Werror")
check_c_source_compiles("
  #include <features.h>
  #if !defined __USE_FORTIFY_LEVEL || __USE_FORTIFY_LEVEL < 3
  #error no level 3
  #endif
  int main(void) { return 0; }" vmm_has_fortify_3)
cmake_pop_check_state()
set(vmm_fortify_level $<IF:$<BOOL:${vmm_has_fortify_3}>,3,2>)
set(vmm_fortify_options $<$<NOT:$<CONFIG:Debug>>:-U_FORTIFY_SOURCE>
                        $<$<NOT:$<CONFIG:Debug>>:-D_FORTIFY_SOURCE=${vmm_fortify_level}>)

# Reproducible: where the folders of a build lie is not told to it. A debugger of Debug builds wants to know.
check_c_compiler_flag(-ffile-prefix-map=/=/ vmm_has_file_prefix_map)
if(vmm_has_file_prefix_map)
  list(APPEND vmm_compile_options
       $<$<NOT:$<CONFIG:Debug>>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>
       $<$<NOT:$<CONFIG:Debug>>:-ffile-prefix-map=${PROJECT_BINARY_DIR}=.>)
endif()

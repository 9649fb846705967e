# Removes the files that the last installation from a build wrote, of all components, and the project's folders that it
# leaves empty.
#
# usage: cmake -DBUILD=FOLDER -P VmmUninstall.cmake
file(GLOB manifests ${BUILD}/install_manifest*.txt)
if(NOT manifests)
  message(FATAL_ERROR "nothing to uninstall: ${BUILD} has no install_manifest.txt")
endif()
foreach(manifest ${manifests})
  file(STRINGS ${manifest} installed)
  foreach(path ${installed})
    message(STATUS "Removing: $ENV{DESTDIR}${path}")
    file(REMOVE "$ENV{DESTDIR}${path}")
    get_filename_component(folder "${path}" DIRECTORY)
    set(refused 0)
    while(folder MATCHES vmmcache AND refused EQUAL 0)
      execute_process(COMMAND rmdir "$ENV{DESTDIR}${folder}" RESULT_VARIABLE refused ERROR_QUIET) # only if it is empty
      get_filename_component(folder "${folder}" DIRECTORY)
    endwhile()
  endforeach()
  file(REMOVE ${manifest})
endforeach()

# Removes the files that the last installation from a build wrote, of all components.
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
  endforeach()
  file(REMOVE ${manifest})
endforeach()

# find_package(raddle) gives the targets raddle::raddle (shared) and raddle::static.
get_filename_component(_raddle_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET raddle::raddle)
  add_library(raddle::raddle SHARED IMPORTED)
  set_target_properties(raddle::raddle PROPERTIES
    IMPORTED_LOCATION "${_raddle_prefix}/lib/libraddle.so.@VERSION@"
    IMPORTED_SONAME "libraddle.so.0"
    INTERFACE_INCLUDE_DIRECTORIES "${_raddle_prefix}/include")
  add_library(raddle::static STATIC IMPORTED)
  set_target_properties(raddle::static PROPERTIES
    IMPORTED_LOCATION "${_raddle_prefix}/lib/libraddle.a"
    IMPORTED_LINK_INTERFACE_LANGUAGES C
    INTERFACE_LINK_LIBRARIES "gcc_s;pthread;dl;m"
    INTERFACE_INCLUDE_DIRECTORIES "${_raddle_prefix}/include")
endif()

unset(_raddle_prefix)

# Writes OUTPUT: an initializer {name, text}, of a PresetFile (base/presets.h), for every JSON file in DIRECTORY.
file(GLOB files ${DIRECTORY}/*.json)
set(entries "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND entries "{\"${name}\", R\"preset(${text})preset\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${entries}")

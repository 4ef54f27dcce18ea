# Writes OUTPUT: an initializer {name, text}, of an EmbeddedFile (base/presets.h), for every file that the pattern FILES names.
file(GLOB files ${FILES})
set(entries "")
foreach(file ${files})
  get_filename_component(name ${file} NAME_WE)
  file(READ ${file} text)
  string(APPEND entries "{\"${name}\", R\"preset(${text})preset\"},\n")
endforeach()
file(WRITE ${OUTPUT} "${entries}")

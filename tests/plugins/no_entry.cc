// A shared library that is no plug-in.
int NoPlugin() { return 0; }

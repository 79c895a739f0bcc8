"""Where the build puts the native parts: the Go core (axlmgo, go) and libaxlmmlx. Only axlm._bridge imports them."""
